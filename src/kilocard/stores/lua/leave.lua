-- A gateway goes, with nothing running any more.
--
-- KEYS  g, gateways
-- ARGV  gateway, session
if redis.call('HGET', KEYS[1], 'n') ~= ARGV[#ARGV] then return 'J' end
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('DEL', KEYS[1])
return 'S'
