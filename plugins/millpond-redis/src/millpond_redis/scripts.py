"""The scripts that the server runs for a store, in Lua: each call is one script, so it is atomic and proves itself.

Rule of this module: ``KEYS`` are a store's state, order and rows. A call's first arguments are its token and the number
of writes that it has seen; ``FENCED`` says that another process has opened the store, ``LOST`` that it is not what was
written: the number of writes is another, or ``order`` or ``rows`` have not as many entries as ``state`` says.
"""

from typing import Final

FENCED: Final = "FENCED"
LOST: Final = "LOST"

_COMPLETE = f"""
local entries = tonumber(is[3])
if redis.call('ZCARD', KEYS[2]) ~= entries or redis.call('HLEN', KEYS[3]) ~= entries then
    return redis.error_reply('{LOST}')
end
"""
_PROOF = f"""
local is = redis.call('HMGET', KEYS[1], 'token', 'writes', 'entries')
if is[1] and is[1] ~= ARGV[1] then return redis.error_reply('{FENCED}') end
if is[2] ~= ARGV[2] then return redis.error_reply('{LOST}') end
{_COMPLETE}"""
_DONE = """
redis.call('HINCRBY', KEYS[1], 'writes', 1)
redis.call('HSET', KEYS[1], 'entries', redis.call('ZCARD', KEYS[2]))
return 1
"""

TAKE: Final = f"""
local is = redis.call('HMGET', KEYS[1], 'token', 'writes', 'entries')
if not is[1] then
    if ARGV[3] ~= 'may be new' then return redis.error_reply('{LOST}') end
    is = {{'', '0', '0'}}
elseif ARGV[2] ~= '' and string.sub(is[1], 1, #ARGV[2]) ~= ARGV[2] then
    return redis.error_reply('{FENCED}')
end
{_COMPLETE}
redis.call('HSET', KEYS[1], 'token', ARGV[1], 'writes', is[2], 'entries', is[3])
return is[2]
"""
"""Makes a token the store's; arguments: the token, the beginning that the last one must have, whether the store may be
new. Returns the number of writes.
"""

CHECK: Final = f"{_PROOF} return 1"
"""Only the proof."""

GET: Final = f"{_PROOF} return redis.call('HGET', KEYS[3], ARGV[3])"
"""The value of a key."""

GET_MANY: Final = f"""{_PROOF}
local found = {{}}
for first = 3, #ARGV, 1000 do
    local some = redis.call('HMGET', KEYS[3], unpack(ARGV, first, math.min(first + 999, #ARGV)))
    for i = 1, #some do found[#found + 1] = some[i] end
end
return found
"""
"""The values of keys."""

PAGE: Final = f"""{_PROOF}
local keys
if ARGV[6] == 'reverse' then
    keys = redis.call('ZREVRANGEBYLEX', KEYS[2], ARGV[4], ARGV[3], 'LIMIT', 0, ARGV[5])
else
    keys = redis.call('ZRANGEBYLEX', KEYS[2], ARGV[3], ARGV[4], 'LIMIT', 0, ARGV[5])
end
if #keys == 0 then return {{keys, keys}} end
return {{keys, redis.call('HMGET', KEYS[3], unpack(keys))}}
"""
"""The first keys of a range, and their values; arguments: bounds, how many, at most 1,024, and the direction."""

WRITE: Final = f"""{_PROOF}
local at = 4
for _ = 1, tonumber(ARGV[3]) do
    if redis.call('HSET', KEYS[3], ARGV[at], ARGV[at + 1]) == 1 then
        redis.call('ZADD', KEYS[2], 0, ARGV[at])
    end
    at = at + 2
end
for i = at, #ARGV do
    redis.call('HDEL', KEYS[3], ARGV[i])
    redis.call('ZREM', KEYS[2], ARGV[i])
end
{_DONE}"""
"""Arguments: how many keys come with a value, these and their values, keys to delete."""

DELETE_RANGE: Final = f"""{_PROOF}
while true do
    local keys = redis.call('ZRANGEBYLEX', KEYS[2], ARGV[3], ARGV[4], 'LIMIT', 0, 1000)
    if #keys == 0 then break end
    redis.call('HDEL', KEYS[3], unpack(keys))
    redis.call('ZREM', KEYS[2], unpack(keys))
end
{_DONE}"""
"""Arguments: the bounds."""

SIZES: Final = f"""{_PROOF}
local bytes = 0
for _, key in ipairs(KEYS) do bytes = bytes + (redis.call('MEMORY', 'USAGE', key) or 0) end
return {{redis.call('ZCARD', KEYS[2]), bytes}}
"""
"""Entries, and an estimate of the bytes that they take in the server's memory."""
