-- A gateway lives. Those that have not been heard for long are dead: their running requests are no more, and what
-- these held of budgets counts as used.
--
-- KEYS  g, gateways, then for each scope to look at: a
-- ARGV  gateway, at, when this was sent (microseconds), how long one may be silent (microseconds),
--       heard since (microseconds), for each scope: name, its day or '', its month or '', session
-- →     J as in reserve, or
--       B seconds micros, how many gateways live, how many of them were heard since, then for each scope as in reserve
local gateway = ARGV[1]
if redis.call('HGET', KEYS[1], 'n') ~= ARGV[#ARGV] then return 'J' end
local now, micros = clock(ARGV[2])
local moment = now * 1000000 + micros
-- One that lay in a buffer while Redis hung says nothing about now.
if moment - tonumber(ARGV[3]) < 500000 then redis.call('ZADD', KEYS[2], int(moment), gateway) end

local function bury(dead)
  local key = P .. 'g:' .. dead
  local left = redis.call('HGETALL', key)
  for place = 1, #left, 2 do
    local field, value = left[place], tonumber(left[place + 1])
    local kind, rest = field:sub(1, 1), field:sub(2)
    if kind == 'c' and value ~= 0 then
      local account = P .. 'a:' .. rest
      local running = tonumber(redis.call('HGET', account, 'c'))
      if running then redis.call('HSET', account, 'c', int(math.max(0, running - value))) end
    elseif kind == 'h' then
      local bar = rest:find('|', 1, true)
      move(dead, rest:sub(1, bar - 1), rest:sub(bar + 1), -value, value)
    end
  end
  redis.call('DEL', key)
  redis.call('ZREM', KEYS[2], dead)
end

local silent = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', int(moment - tonumber(ARGV[4])), 'LIMIT', 0, 8)
for _, dead in ipairs(silent) do
  if dead ~= gateway then bury(dead) end
end
redis.call('EXPIRE', KEYS[1], 40 * DAY)
redis.call('EXPIRE', KEYS[2], 40 * DAY)

local answer = {
  'B', int(now), int(micros), redis.call('ZCARD', KEYS[2]), redis.call('ZCOUNT', KEYS[2], ARGV[5], '+inf'),
}
for number = 1, #KEYS - 2 do
  local base = 5 + 3 * (number - 1)
  local account = open(KEYS[2 + number], now)
  local day_settled, day_held = budget(ARGV[base + 2], ARGV[base + 1])
  local month_settled, month_held = budget(ARGV[base + 3], ARGV[base + 1])
  answer[#answer + 1] = string.format(
    '%.0f %.0f %.0f %.0f %.0f %.0f %.0f', account.R, account.T, account.c, day_settled, day_held, month_settled,
    month_held
  )
end
return table.concat(answer, ' ')
