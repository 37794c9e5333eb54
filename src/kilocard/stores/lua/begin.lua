-- A gateway begins a session: from now on only this one may write for it, and no earlier one whose commands come late.
--
-- KEYS  g, gateways
-- ARGV  gateway, at, session
-- →     J  there has been a later one; or B seconds micros
if tonumber(redis.call('HGET', KEYS[1], 'n') or '0') >= tonumber(ARGV[#ARGV]) then return 'J' end
redis.call('HSET', KEYS[1], 'n', ARGV[#ARGV])
redis.call('EXPIRE', KEYS[1], 40 * DAY)
local now, micros = clock(ARGV[2])
-- Known from here on, so that it is buried if nothing more comes; heard only when it has said how it stands.
redis.call('ZADD', KEYS[2], int(now * 1000000 + micros - 1000000), ARGV[1])
return 'B ' .. int(now) .. ' ' .. int(micros)
