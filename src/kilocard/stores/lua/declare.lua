-- A gateway says all that it has put into some scopes, whatever was there: the difference is made up. Safe to repeat.
--
-- KEYS  g, then for each scope: a, o
-- ARGV  gateway, at, seconds that accounts are kept,
--       for each scope: name, how many of its requests run, 'second requests tokens …' of its last minute,
--       'period settled unsaid known held …' of its budgets:
--           settled  by this gateway in all
--           unsaid   of that, what no answer has confirmed
--           known    settled by all gateways when this one last heard
--       session
-- →     J as in reserve, or S
local gateway, ttl = ARGV[1], ARGV[3]
if redis.call('HGET', KEYS[1], 'n') ~= ARGV[#ARGV] then return 'J' end
local now = clock(ARGV[2])

local function numbers(text)
  local found = {}
  for word in string.gmatch(text, '%S+') do found[#found + 1] = tonumber(word) or word end
  return found
end

local function window(account, own, text)
  local newest = account.s
  local wanted = {}
  local said = numbers(text)
  for place = 1, #said, 3 do
    local second = math.min(said[place], newest)
    if second > newest - RING then
      local slot = second % RING
      wanted['r' .. slot] = (wanted['r' .. slot] or 0) + said[place + 1]
      wanted['t' .. slot] = (wanted['t' .. slot] or 0) + said[place + 2]
    end
  end
  local names = {}
  for slot = 0, RING - 1 do
    names[#names + 1] = 'r' .. slot
    names[#names + 1] = 't' .. slot
  end
  local found = redis.call('HMGET', own.key, unpack(names))
  local stale = {}
  for _, name in ipairs(own.forget or {}) do stale[name] = true end
  own.R, own.T = 0, 0
  for place, name in ipairs(names) do
    local there = not stale[name] and tonumber(found[place]) or 0
    local want = wanted[name] or 0
    local total = name:sub(1, 1) == 'r' and 'R' or 'T'
    own[total] = own[total] + want
    if want ~= there then
      account[total] = account[total] + want - there
      if tonumber(name:sub(2)) == newest % RING then
        local current = name:sub(1, 1)
        account[current] = account[current] + want - there
      else
        redis.call('HINCRBY', account.key, name, int(want - there))
      end
    end
  end
  redis.call('DEL', own.key)
  own.forget, own.turned = nil, true
  own.r, own.t = wanted['r' .. newest % RING] or 0, wanted['t' .. newest % RING] or 0
  for name, want in pairs(wanted) do
    if want ~= 0 then redis.call('HSET', own.key, name, int(want)) end
  end
end

for number = 1, (#KEYS - 1) / 2 do
  local base = 3 + 4 * (number - 1)
  local name = ARGV[base + 1]
  local account = open(KEYS[2 * number], now)
  local own = open(KEYS[2 * number + 1], account.s)
  turn(account, own.s)
  forget(account)
  window(account, own, ARGV[base + 3])
  local running = tonumber(ARGV[base + 2])
  account.c = math.max(0, account.c + running - (tonumber(redis.call('HGET', KEYS[1], 'c' .. name)) or 0))
  account.turned = true
  save(account, ttl)
  save(own, '120')
  redis.call('HSET', KEYS[1], 'c' .. name, int(running))
  local said = numbers(ARGV[base + 4])
  for place = 1, #said, 5 do
    local period, settled, unsaid, known, held = unpack(said, place, place + 4)
    period = tostring(period)
    local key, field = P .. 'b:' .. period, 'S' .. gateway .. '|' .. name
    local mine = tonumber(redis.call('HGET', key, field))
    local total = tonumber(redis.call('HGET', key, 's' .. name)) or 0
    if mine then
      total = total + settled - mine
    else
      total = math.max(total, known) + unsaid -- what was here is lost: the most that anybody has heard of counts
    end
    redis.call('HSET', key, 's' .. name, int(total), field, int(settled))
    local was = tonumber(redis.call('HGET', KEYS[1], 'h' .. period .. '|' .. name)) or 0
    move(gateway, period, name, held - was, 0)
  end
end
return 'S'
