-- What all scripts begin with: the clock, and the sliding minute of tenancy/window.py in a hash.
--
-- Keys, all under one hash tag, so that a cluster keeps them on one node:
--   {kilocard}:gateways        sorted set: gateway → when it was last heard (microseconds)
--   {kilocard}:g:GATEWAY       hash: n (the session that may write), c<scope> (running), h<period>|<scope> (tokens held)
--   {kilocard}:a:SCOPE         hash: an account, of all gateways together
--   {kilocard}:o:GATEWAY:SCOPE hash: the same of what this gateway alone has put there
--   {kilocard}:b:PERIOD        hash: s<scope> (settled), h<scope> (held), S<gateway>|<scope> (settled by this gateway)
-- An account: s (its newest second), R and T (requests and tokens in it), c (running), and r<i>, t<i>: what was
-- charged in the second whose number is i modulo 61. Whatever is not there is 0.
local P = '{kilocard}:'
local RING = 61
local DAY = 86400

local function int(number)
  return string.format('%.0f', number == 0 and 0 or number) -- '-0' is no number to HINCRBY
end

-- Seconds and microseconds. `at` is 0, or in tests the microseconds since 1970 that it shall be.
local function clock(at)
  if at == '0' then
    local time = redis.call('TIME')
    return tonumber(time[1]), tonumber(time[2])
  end
  local micros = tonumber(at)
  return math.floor(micros / 1000000), micros % 1000000
end

-- Let the account go on to second `now`. Nothing is written before `save`.
local function turn(account, now)
  local gone = now - account.s
  if gone <= 0 then return end
  if account.R ~= 0 or account.T ~= 0 then
    local names, count = {}, 0
    for second = account.s + 1, account.s + math.min(gone, RING) do
      names[count + 1] = 'r' .. second % RING
      names[count + 2] = 't' .. second % RING
      count = count + 2
    end
    local left = redis.call('HMGET', account.key, unpack(names))
    for place = 1, count, 2 do
      account.R = account.R - (tonumber(left[place]) or 0)
      account.T = account.T - (tonumber(left[place + 1]) or 0)
    end
    account.forget = names
  end
  account.s, account.r, account.t, account.turned = now, 0, 0, true
end

-- An account at second `now`; where the clock has gone back, at its own newest second.
local function open(key, now)
  local slot = now % RING
  local found = redis.call('HMGET', key, 's', 'R', 'T', 'c', 'r' .. slot, 't' .. slot)
  local account = {
    key = key, s = tonumber(found[1]) or now, R = tonumber(found[2]) or 0, T = tonumber(found[3]) or 0,
    c = tonumber(found[4]) or 0, r = tonumber(found[5]) or 0, t = tonumber(found[6]) or 0, turned = not found[1],
  }
  account.before = account.s
  if account.s > now then
    found = redis.call('HMGET', key, 'r' .. account.s % RING, 't' .. account.s % RING)
    account.r, account.t = tonumber(found[1]) or 0, tonumber(found[2]) or 0
  end
  turn(account, now)
  return account
end

-- What has left goes before anything is written to its places.
local function forget(account)
  if account.forget then redis.call('HDEL', account.key, unpack(account.forget)) end
  account.forget = nil
end

local function save(account, ttl)
  forget(account)
  local slot = account.s % RING
  redis.call(
    'HSET', account.key, 's', int(account.s), 'R', int(account.R), 'T', int(account.T), 'c', int(account.c),
    'r' .. slot, int(account.r), 't' .. slot, int(account.t)
  )
  if account.turned then redis.call('EXPIRE', account.key, ttl) end
end

-- Charge now.
local function add(account, requests, tokens)
  account.R, account.r = account.R + requests, account.r + requests
  account.T, account.t = account.T + tokens, account.t + tokens
end

-- Part of what was added at `second`, if that is still here.
local function give_back(account, second, requests, tokens)
  if second <= account.s - RING then return end
  account.R, account.T = account.R - requests, account.T - tokens
  if second >= account.s then
    account.r, account.t = account.r - requests, account.t - tokens
    return
  end
  forget(account)
  if requests ~= 0 then redis.call('HINCRBY', account.key, 'r' .. second % RING, -requests) end
  if tokens ~= 0 then redis.call('HINCRBY', account.key, 't' .. second % RING, int(-tokens)) end
end

-- What a budget of `period` has settled and what it holds; -1, -1 where there is none.
local function budget(period, scope)
  if period == '' then return -1, -1 end
  local found = redis.call('HMGET', P .. 'b:' .. period, 's' .. scope, 'h' .. scope)
  return tonumber(found[1]) or 0, tonumber(found[2]) or 0
end

-- Change what it holds and has settled, and this gateway's part in that.
local function move(gateway, period, scope, held, settled)
  local key = P .. 'b:' .. period
  if redis.call('HINCRBY', key, 'h' .. scope, int(held)) < 0 then redis.call('HSET', key, 'h' .. scope, '0') end
  local mine, field = P .. 'g:' .. gateway, 'h' .. period .. '|' .. scope
  if redis.call('HINCRBY', mine, field, int(held)) <= 0 then redis.call('HDEL', mine, field) end
  if settled ~= 0 then
    redis.call('HINCRBY', key, 's' .. scope, int(settled))
    redis.call('HINCRBY', key, 'S' .. gateway .. '|' .. scope, int(settled))
  end
  redis.call('EXPIRE', key, (#period > 7 and 3 or 40) * DAY)
end
