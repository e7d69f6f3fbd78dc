"""The Lua that keeps order inside Redis: compare the version, then write, in one step per row.

Versions are compared as 19 digits of text, because Lua's numbers are doubles. One call takes many
rows and answers with one letter each:

    A  applied            S  the row, or its tombstone, is newer
    M  no row to merge    R  the row changed since it was read    T  the key is somebody else's
    E  Redis refused it; the reasons follow in the answer, in the order of the letters

A tombstone is a key of its own, so that readers never see one. A row and a tombstone of the same id
never exist together. Keys of tombstones are derived, not declared, which Redis Cluster does not take.

What a command of its own would do for each row is done by one command for all of them where there is
one: a command costs a script more than what it does.
"""

from __future__ import annotations

__all__ = ["CLAIM", "HASH_APPLY", "JSON_APPLY", "JSON_REPLACE"]

# KEYS: rows, each once, at most some thousands. ARGV: length of the keys' common head, head of the
# tombstones, their life in ms, then one value per key: the row; or a delete's bare version; or that version
# and a "<", which removes only what is older, as a truncate does. A row is longer than either. The values
# of hashes are arguments, those of documents lines of one argument, each after a line feed.

# What is told at the end, and what is known of each key.
_BEGIN = """
local call, try, sub = redis.call, redis.pcall, string.sub
local cut, stones, life = tonumber(ARGV[1]) + 1, ARGV[2], ARGV[3]
local count = #KEYS
local letters, reasons = {}, {}
-- The version of the row that stands there, or of the tombstone; the tombstone's key where there is no row.
local olds, graves = {}, {}
-- Numbers of the deletes that are due, their tombstones with the versions, and tombstones whose row is there.
local dying, burials, fallen = {}, {}, {}

local function refused(i, failure)
  letters[i], reasons[i] = 'E', failure.err
end

-- Rejects a key whose value is not what a row is kept in.
local function unlike(i, failure)
  if string.find(failure.err, 'WRONGTYPE', 1, true) then letters[i] = 'T' else refused(i, failure) end
end
"""

# Needs standing(i): the version of the row, false where there is no key, nil where no row is to be touched.
_LOOK = """
if call('EXISTS', unpack(KEYS)) == 0 then
  for i = 1, count do graves[i] = stones .. sub(KEYS[i], cut) end
  olds = call('MGET', unpack(graves))
else
  local sought, whose = {}, {}
  for i = 1, count do
    local version = standing(i)
    if version then olds[i] = version
    elseif version == false then
      local grave = stones .. sub(KEYS[i], cut)
      graves[i], sought[#sought + 1], whose[#whose + 1] = grave, grave, i
    end
  end
  if #sought > 0 then
    local found = call('MGET', unpack(sought))
    for n = 1, #sought do olds[whose[n]] = found[n] end
  end
end
"""

# Needs values and write(i, value, old). A write that is refused is so before anything of its row is removed.
_DECIDE = """
for i = 1, count do
  if not letters[i] then
    local value, old = values[i], olds[i]
    if #value > 20 then write(i, value, old)
    else
      local version = #value == 19 and value or sub(value, 1, 19)
      if old and (old > version or (#value == 20 and old == version)) then letters[i] = 'S'
      else
        letters[i] = 'A'
        dying[#dying + 1] = i
        burials[#burials + 1] = graves[i] or (stones .. sub(KEYS[i], cut))
        burials[#burials + 1] = version
      end
    end
  end
end
if #dying > 0 then
  local answer = try('MSET', unpack(burials))
  if answer.err then
    for n = 1, #dying do refused(dying[n], answer) end
  else
    local dead = {}
    for n = 1, #dying do
      call('PEXPIRE', burials[2 * n - 1], life)
      if not graves[dying[n]] then dead[#dead + 1] = KEYS[dying[n]] end
    end
    if #dead > 0 then call('DEL', unpack(dead)) end
  end
end
"""

_END = """
if #fallen > 0 then call('DEL', unpack(fallen)) end
local answer = {table.concat(letters)}
if next(reasons) then
  for i = 1, count do answer[#answer + 1] = reasons[i] end
end
return answer
"""

# A row is its document, which begins with its version.
_JSON_STANDING = """
local function standing(i)
  local found = try('GETRANGE', KEYS[i], 0, 32)
  if type(found) == 'table' then unlike(i, found)
  elseif found == '' then return false
  elseif sub(found, 1, 14) ~= '{"_headrace":"' then letters[i] = 'T'
  else return sub(found, 15) end
end
"""

_JSON_WRITE = """
local values, text, at = {}, ARGV[4], 2
for i = 1, count do
  local stop = string.find(text, '\\n', at, true) or #text + 1
  values[i] = sub(text, at, stop - 1)
  at = stop + 1
end

local rows, whose = {}, {}
local function write(i, value, old)
  if old and old > sub(value, 15, 33) then letters[i] = 'S'
  else
    letters[i] = 'A'
    whose[#whose + 1], rows[#rows + 1] = i, KEYS[i]
    rows[#rows + 1] = value
    if old and graves[i] then fallen[#fallen + 1] = graves[i] end
  end
end
"""

_JSON_ALL = """
if #rows > 0 then
  local answer = try('MSET', unpack(rows))
  if answer.err then
    fallen = {}
    for n = 1, #whose do refused(whose[n], answer) end
  end
end
"""

# A row is a sequence of msgpack values: its version; f(ull) or p(art of one); the fields that are to be
# empty, or nil; then field and value in turn, the version's and the origin's first.
_HASH_STANDING = """
local function standing(i)
  local found = try('HGET', KEYS[i], '_headrace')
  if type(found) == 'table' then unlike(i, found)
  elseif found then return found
  elseif call('EXISTS', KEYS[i]) == 0 then return false
  else letters[i] = 'T' end
end
"""

_HASH_WRITE = """
local values = {select(4, unpack(ARGV))}

-- The arguments of a call are limited to some thousands: columns of Postgres, twice, are fewer.
local function put(i, old, version, mode, unset, ...)
  local key, grave = KEYS[i], graves[i]
  if old and old > version then letters[i] = 'S'
  elseif grave and mode == 'p' then letters[i] = 'M'
  else
    local answer = try('HSET', key, ...)
    if type(answer) == 'table' then return refused(i, answer) end
    letters[i] = 'A'
    if grave then
      if old then fallen[#fallen + 1] = grave end
    elseif mode == 'p' then
      if unset then call('HDEL', key, unpack(unset)) end
    else
      local set = select('#', ...)
      if call('HLEN', key) * 2 == set then return end
      if unset then
        call('HDEL', key, unpack(unset))
        if call('HLEN', key) * 2 == set then return end
      end
      -- Fields of columns that are no more.
      call('DEL', key)
      call('HSET', key, ...)
    end
  end
end

local function write(i, value, old)
  put(i, old, cmsgpack.unpack(value))
end
"""

JSON_APPLY = _BEGIN + _JSON_STANDING + _LOOK + _JSON_WRITE + _DECIDE + _JSON_ALL + _END

HASH_APPLY = _BEGIN + _HASH_STANDING + _LOOK + _HASH_WRITE + _DECIDE + _END

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
