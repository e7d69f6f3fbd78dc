"""The Lua that keeps order inside Redis: compare the version, then write, in one step per row.

Versions are compared as 19 digits of text, because Lua's numbers are doubles. One call takes many
rows and answers with one letter each:

    A  applied            S  the row, or its tombstone, is newer
    M  no row to merge    R  the row changed since it was read    T  the key is somebody else's
    E  Redis refused the write; the reason follows in the answer

A tombstone is a key of its own, so that readers never see one. A row and a tombstone of the same id
never exist together. Keys of tombstones are derived, not declared, which Redis Cluster does not take.
"""

from __future__ import annotations

__all__ = ["CLAIM", "HASH_APPLY", "JSON_APPLY", "JSON_REPLACE"]

# ARGV: length of the keys' common head, head of the tombstones, their life in ms, then one value per
# key: the document, which begins with its version; the bare version of a delete; or that version
# and a "<", which removes only what is older, as a truncate does.
JSON_APPLY = """
local cut, stones, life = tonumber(ARGV[1]) + 1, ARGV[2], ARGV[3]
local letters, notes = {}, {}
for i = 1, #KEYS do
  local key, value = KEYS[i], ARGV[i + 3]
  local gone, version = #value <= 20, string.sub(value, 1, 19)
  if not gone then version = string.sub(value, 15, 33) end
  local found = redis.pcall('GETRANGE', key, 0, 32)
  local letter, stone, old, failure = 'A', false, false, false
  if type(found) == 'table' then letter = 'T'
  elseif found == '' then
    stone = stones .. string.sub(key, cut)
    old = redis.call('GET', stone)
  elseif string.sub(found, 1, 14) ~= '{"_headrace":"' then letter = 'T'
  else old = string.sub(found, 15, 33) end
  if letter == 'A' then
    if old and (old > version or (#value == 20 and old == version)) then letter = 'S'
    elseif gone then
      failure = redis.pcall('SET', stone or (stones .. string.sub(key, cut)), version, 'PX', life)
      if not failure.err and not stone then redis.call('DEL', key) end
    else
      failure = redis.pcall('SET', key, value)
      if not failure.err and stone and old then redis.call('DEL', stone) end
    end
  end
  if failure and failure.err then letter = 'E'; notes[#notes + 1] = failure.err end
  letters[i] = letter
end
return {table.concat(letters), unpack(notes)}
"""

# ARGV: two per key: the version that was read, and the merged document.
JSON_REPLACE = """
local letters, notes = {}, {}
for i = 1, #KEYS do
  local seen, value = ARGV[2 * i - 1], ARGV[2 * i]
  local found = redis.pcall('GETRANGE', KEYS[i], 14, 32)
  local letter = 'R'
  if found == seen then
    local failure = redis.pcall('SET', KEYS[i], value)
    letter = 'A'
    if failure.err then letter = 'E'; notes[#notes + 1] = failure.err end
  end
  letters[i] = letter
end
return {table.concat(letters), unpack(notes)}
"""

# ARGV: length of the keys' common head, head of the tombstones, their life in ms, then per key: the
# version, d(elete), t(runcate: remove only what is older), f(ull row) or p(art of a row), how many
# arguments to set, how many fields to remove, and those. The version's own field is the first to be set.
HASH_APPLY = """
local cut, stones, life = tonumber(ARGV[1]) + 1, ARGV[2], ARGV[3]
local letters, notes, at = {}, {}, 4
for i = 1, #KEYS do
  local key, version, mode = KEYS[i], ARGV[at], ARGV[at + 1]
  local set, unset = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local first = at + 4
  at = first + set + unset
  local old = redis.pcall('HGET', key, '_headrace')
  local letter, stone, failure = 'A', false, false
  if type(old) == 'table' then letter = 'T'
  elseif not old then
    if redis.call('EXISTS', key) == 1 then letter = 'T'
    else
      stone = stones .. string.sub(key, cut)
      old = redis.call('GET', stone)
    end
  end
  if letter == 'A' then
    if old and (old > version or (mode == 't' and old == version)) then letter = 'S'
    elseif mode == 'd' or mode == 't' then
      failure = redis.pcall('SET', stone or (stones .. string.sub(key, cut)), version, 'PX', life)
      if not failure.err and not stone then redis.call('DEL', key) end
    elseif mode == 'p' and stone then letter = 'M'
    else
      -- Only the first write can be refused, and nothing is removed before it.
      failure = redis.pcall('HSET', key, unpack(ARGV, first, math.min(first + 999, first + set - 1)))
      if type(failure) == 'number' then
        local function rest(from)
          for start = from, first + set - 1, 1000 do
            redis.call('HSET', key, unpack(ARGV, start, math.min(start + 999, first + set - 1)))
          end
        end
        rest(first + 1000)
        for field = first + set, at - 1 do redis.call('HDEL', key, ARGV[field]) end
        if mode == 'f' and not stone and redis.call('HLEN', key) * 2 ~= set then
          redis.call('DEL', key)
          rest(first)
        end
        if stone and old then redis.call('DEL', stone) end
      end
    end
  end
  if type(failure) == 'table' and failure.err then letter = 'E'; notes[#notes + 1] = failure.err end
  letters[i] = letter
end
return {table.concat(letters), unpack(notes)}
"""

# KEYS: the hash of claims. ARGV: the new claim, then per table its field and the claim that has to stand
# there, empty for none. Answers with a letter each: A(pplied) or L(ost to somebody else).
CLAIM = """
local letters = {}
for i = 2, #ARGV, 2 do
  local standing = redis.call('HGET', KEYS[1], ARGV[i]) or ''
  if standing == ARGV[i + 1] then
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[1])
    letters[#letters + 1] = 'A'
  else
    letters[#letters + 1] = 'L'
  end
end
return table.concat(letters)
"""
