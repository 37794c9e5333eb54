-- A request has ended: give back what it did not use, charge now what it used beyond that.
--
-- KEYS  g, then for each scope: a, o
-- ARGV  gateway, at, seconds that accounts are kept, for each scope: name, its day or '', its month or '',
--       the second in which it was reserved, requests to give back (0 or 1), tokens reserved, tokens used,
--       session
-- →     J as in reserve, or S
-- Each gateway sends this once for each of its grants. Should an answer be lost, it joins again and says how it stands.
local gateway, ttl = ARGV[1], ARGV[3]
if redis.call('HGET', KEYS[1], 'n') ~= ARGV[#ARGV] then return 'J' end
local now = clock(ARGV[2])
local last = #ARGV - 1
local second, back = tonumber(ARGV[last - 3]), tonumber(ARGV[last - 2])
local reserved, used = tonumber(ARGV[last - 1]), tonumber(ARGV[last])

local function settle(account, kept)
  if used > reserved then
    give_back(account, second, back, 0)
    add(account, 0, used - reserved)
  else
    give_back(account, second, back, reserved - used)
  end
  save(account, kept)
end

for number = 1, (#KEYS - 1) / 2 do
  local base = 3 + 3 * (number - 1)
  local name = ARGV[base + 1]
  local account = open(KEYS[2 * number], now)
  if redis.call('HINCRBY', KEYS[1], 'c' .. name, -1) < 0 then
    redis.call('HSET', KEYS[1], 'c' .. name, '0')
  else
    account.c = math.max(0, account.c - 1)
  end
  settle(account, ttl)
  settle(open(KEYS[2 * number + 1], account.s), '120')
  for _, period in ipairs({ARGV[base + 2], ARGV[base + 3]}) do
    if period ~= '' then move(gateway, period, name, -reserved, used) end
  end
end
return 'S'
