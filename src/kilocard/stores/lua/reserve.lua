-- Take one request, its tokens and a place among the running of all scopes, or change nothing.
--
-- KEYS  g, then for each scope: a, o
-- ARGV  gateway, at, seconds that accounts are kept, day, month,
--       for each scope: name, requests and tokens a minute, running, tokens a day, tokens a month ('' is no limit),
--       tokens of this request, session
-- →     J  this session may not write (any more): join again
--       G|D seconds micros, then for each scope: R T c day.settled day.held month.settled month.held
--           D besides: the seconds whose end makes room for this request and for these tokens (-1: there is room),
--           and the newest seconds with a request and with tokens (0: none)
local gateway, ttl = ARGV[1], ARGV[3]
if redis.call('HGET', KEYS[1], 'n') ~= ARGV[#ARGV] then return 'J' end
local now, micros = clock(ARGV[2])
local tokens = tonumber(ARGV[#ARGV - 1])
local scopes, fits = {}, true

local function over(limit, used)
  return limit and used > limit
end

for number = 1, (#KEYS - 1) / 2 do
  local base = 6 * number - 1
  local scope = {
    name = ARGV[base + 1], rpm = tonumber(ARGV[base + 2]), tpm = tonumber(ARGV[base + 3]),
    running = tonumber(ARGV[base + 4]), per_day = tonumber(ARGV[base + 5]), per_month = tonumber(ARGV[base + 6]),
    account = open(KEYS[2 * number], now),
  }
  scope.day = scope.per_day and ARGV[4] or ''
  scope.month = scope.per_month and ARGV[5] or ''
  scope.day_settled, scope.day_held = budget(scope.day, scope.name)
  scope.month_settled, scope.month_held = budget(scope.month, scope.name)
  local account = scope.account
  if
    over(scope.rpm, account.R + 1) or over(scope.running, account.c + 1) or over(scope.tpm, account.T + tokens)
    or over(scope.per_day, scope.day_settled + scope.day_held + tokens)
    or over(scope.per_month, scope.month_settled + scope.month_held + tokens)
  then
    fits = false
  end
  scopes[number] = scope
end

-- The second that must end for `much` of what is in the ring to leave (-1: none must), and the newest with anything.
local function wait(account, kind, much)
  local names = {}
  for back = 1, RING do
    names[back] = kind .. (account.s - RING + back) % RING
  end
  local ring = redis.call('HMGET', account.key, unpack(names))
  local leaves, newest = -1, 0
  for back = 1, RING do
    local second = account.s - RING + back
    local count = second <= account.before and tonumber(ring[back]) or 0
    if count > 0 then newest = second end
    if much > 0 then
      much = much - count
      if much <= 0 then leaves = second end
    end
  end
  if much > 0 then leaves = account.s end
  return leaves, newest
end

local answer = {fits and 'G' or 'D', int(now), int(micros)}
for number, scope in ipairs(scopes) do
  local account = scope.account
  if fits then
    add(account, 1, tokens)
    account.c = account.c + 1
    save(account, ttl)
    local own = open(KEYS[2 * number + 1], account.s)
    add(own, 1, tokens)
    save(own, '120')
    redis.call('HINCRBY', KEYS[1], 'c' .. scope.name, 1)
    for _, period in ipairs({scope.day, scope.month}) do
      if period ~= '' then move(gateway, period, scope.name, tokens, 0) end
    end
    if scope.day ~= '' then scope.day_held = scope.day_held + tokens end
    if scope.month ~= '' then scope.month_held = scope.month_held + tokens end
  end
  answer[#answer + 1] = string.format(
    '%.0f %.0f %.0f %.0f %.0f %.0f %.0f', account.R, account.T, account.c, scope.day_settled, scope.day_held,
    scope.month_settled, scope.month_held
  )
  if not fits then
    local request_leaves, newest_request, tokens_leave, newest_tokens = -1, 0, -1, 0
    if scope.rpm then
      request_leaves, newest_request = wait(account, 'r', account.R + 1 - scope.rpm)
    end
    if scope.tpm then
      tokens_leave, newest_tokens = wait(account, 't', account.T + tokens - scope.tpm)
    end
    answer[#answer + 1] = string.format(
      '%.0f %.0f %.0f %.0f', request_leaves, tokens_leave, newest_request, newest_tokens
    )
  end
end
return table.concat(answer, ' ')
