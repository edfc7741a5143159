"""The scripts of a store in a Redis server, which runs only one at a time; see `_redis.py` for the keys."""

from __future__ import annotations

import hashlib
from typing import Final

from lmos_actors.errors import StoreForeign, StoreNewer

VERSION: Final = 1
"""Version of the layout."""

NOT_OURS: Final = "another program has keys of that prefix", "name another prefix"

# KEYS[1] is the prefix in all of them; they name the other keys by it.

_JOIN: Final = """
local meta = KEYS[1] .. ':meta'
local version = redis.call('HGET', meta, 'version')
if version and version ~= ARGV[1] then
  return {version, 0, ''}
end
local id = redis.call('HGET', meta, 'id') or ''
if ARGV[6] ~= '' and ARGV[6] ~= id then
  return {ARGV[1], -1, id}
end
if not version then
  redis.call('HSET', meta, 'version', ARGV[1], 'made', ARGV[2], 'id', ARGV[3], 'writers', ARGV[5])
end
local kind = redis.call('HGET', meta, 'writers')
if kind ~= ARGV[5] then
  return {ARGV[1], 0, kind}
end
local writers, seen = KEYS[1] .. ':writers', KEYS[1] .. ':seen'
local writer = redis.call('HINCRBY', meta, 'writer', 1)
local now = tonumber(redis.call('TIME')[1])
if kind == 'one' then
  redis.call('DEL', writers, seen)
end
redis.call('HSET', writers, writer, ARGV[3] .. ' 1 0')
redis.call('ZADD', seen, now, writer)
if redis.call('HLEN', writers) > tonumber(ARGV[4]) then
  local gone = redis.call('ZRANGEBYSCORE', seen, '-inf', now - tonumber(ARGV[7]), 'LIMIT', 0, 1000)
  if #gone > 0 then
    redis.call('HDEL', writers, unpack(gone))
    redis.call('ZREM', seen, unpack(gone))
  end
end
return {ARGV[1], writer, redis.call('HGET', meta, 'id')}
"""
"""Register a writer. ARGV: version, date, its token, the number of writers always remembered, "one" or
"many", the required id of the store or "", seconds after which a writer that was not seen may be forgotten.
Returns the version found, its number and the id of the store. If it is not admitted: number 0 and the kind of
the store, or number -1 and the id of the store that is there.
"""

_SEEN: Final = """
return redis.call('ZADD', KEYS[1] .. ':seen', 'XX', redis.call('TIME')[1], ARGV[1])
"""
"""Note that a writer, ARGV, is still there."""

_JOIN_AGAIN: Final = """
local writers = KEYS[1] .. ':writers'
local found = redis.call('HGET', writers, ARGV[1])
local token, opening, commit = string.match(found or '', '^(%S+) (%d+) (%d+)$')
if token ~= ARGV[2] or tonumber(commit) < tonumber(ARGV[3]) then
  return {'', found or ''}
end
opening = string.format('%.0f', tonumber(opening) + 1)
redis.call('HSET', writers, ARGV[1], token .. ' ' .. opening .. ' ' .. commit)
return {opening, commit}
"""
"""Take a new opening. ARGV: the writer, its token, its last confirmed commit. Returns the opening and the
last commit; the opening is empty where commits are missing."""

_COMMIT: Final = """
local writers = KEYS[1] .. ':writers'
local found = redis.call('HGET', writers, ARGV[1])
if found ~= ARGV[2] then
  return {found or ''}
end
redis.call('HSET', writers, ARGV[1], ARGV[3])
local values, index = KEYS[1] .. ':v:', KEYS[1] .. ':k:'
local conflicts = {}
for number, batch in ipairs(cmsgpack.unpack(ARGV[4])) do
  local conflict = 0
  for place, write in ipairs(batch) do
    local expected = write[4]
    if expected ~= true then
      if redis.call('HGET', values .. write[2], write[3]) ~= (expected and ARGV[expected]) then
        conflict = place
        break
      end
    end
  end
  if conflict > 0 then
    conflicts[#conflicts + 1] = {number, conflict}
  else
    for _, write in ipairs(batch) do
      local kind, space = write[1], write[2]
      if kind == 1 then
        if redis.call('HSET', values .. space, write[3], ARGV[write[5]]) == 1 then
          redis.call('ZADD', index .. space, 0, write[3])
        end
      elseif kind == 2 then
        if redis.call('HDEL', values .. space, write[3]) == 1 then
          redis.call('ZREM', index .. space, write[3])
        end
      elseif kind == 3 then
        local first, last = write[3], write[5]
        while true do
          local keys = redis.call('ZRANGEBYLEX', index .. space, first, last, 'LIMIT', 0, 1000)
          if #keys == 0 then
            break
          end
          redis.call('HDEL', values .. space, unpack(keys))
          redis.call('ZREM', index .. space, unpack(keys))
        end
      end
    end
  end
end
return {found, conflicts}
"""
"""Write batches. ARGV: the writer, its last entry, its new entry, the batches as MessagePack, and the values,
to which the batches refer by index.

A batch is a list of writes, [kind, space, key, expected, value]: kind 1 a put, 2 a deletion, 3 of a range,
whose `key` and `value` are its ends, 4 a check; `expected` is true for anything, false for nothing. Returns
the entry found and the conflicts, as numbers of batches and of writes from 1; or only the entry found, if it
is not the writer's last: then nothing is written.
"""

_CHECKED: Final = """
if ARGV[1] ~= '' then
  local found = redis.call('HGET', KEYS[1] .. ':writers', ARGV[1])
  local token, opening, commit = string.match(found or '', '^(%S+) (%d+) (%d+)$')
  if token ~= ARGV[2] or tonumber(commit) < tonumber(ARGV[3]) then
    return {0, found or ''}
  end
end
local values = KEYS[1] .. ':v:' .. ARGV[4]
"""
"""The beginning of each read. ARGV: the writer, its token, its last confirmed commit, the space; the writer
is "" for a reader. Returns 0 and the entry found if commits are missing, else 1 and the result."""

_GET: Final = """
return {1, redis.call('HMGET', values, unpack(ARGV, 5))}
"""
"""Read values. Further ARGV: the keys."""

_SCAN: Final = """
local keys = redis.call('ZRANGEBYLEX', KEYS[1] .. ':k:' .. ARGV[4], ARGV[5], ARGV[6], 'LIMIT', 0, ARGV[7])
local found = {}
for first = 1, #keys, 1000 do
  local last = math.min(first + 999, #keys)
  local some = redis.call('HMGET', values, unpack(keys, first, last))
  for place = first, last do
    found[2 * place - 1] = keys[place]
    found[2 * place] = some[place - first + 1]
  end
end
return {1, found}
"""
"""Read a page. Further ARGV: first, last, limit. Returns keys and values alternately."""


class Script:
    """A script, and the hash by which the server can run it again after its first run."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


JOIN, JOIN_AGAIN, SEEN, COMMIT = map(Script, (_JOIN, _JOIN_AGAIN, _SEEN, _COMMIT))
GET, SCAN = Script(_CHECKED + _GET), Script(_CHECKED + _SCAN)


def check_version(name: str, found: str) -> None:
    """Raise StoreForeign or StoreNewer if these scripts cannot use that version of the layout."""
    if not found.isdecimal():
        raise StoreForeign(name, *NOT_OURS)
    why = f"its layout is of version {found}, this program knows {VERSION}"
    if int(found) > VERSION:
        raise StoreNewer(name, why, "use the version of the program that has written it")
    if int(found) < VERSION:
        raise StoreForeign(name, why, "use an older version of the program, or another prefix")
