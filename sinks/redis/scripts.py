"""The Lua that keeps order inside Redis: compare the version, then write, in one step per row.

Versions are compared as 19 digits of text, because Lua's numbers are doubles. One call takes many
rows and answers with one letter each:

    A  applied            S  the row, or its tombstone, is newer
    M  no row to merge    R  the row changed since it was read    T  the key is somebody else's
    E  Redis refused it; the reasons follow in the answer, in the order of the letters

Tombstones lie apart, so that readers never see one: id and version in two hashes per table. Deletes go
into the younger; when that has been there for the life of a tombstone, it becomes the elder, and the elder,
whose tombstones have all lived so long by then, goes. So a table's deletes are one command, and forgotten by
one. A row and a tombstone of the same id never exist together.

What a command of its own would do for each row is done by one command for all of them where there is
one: a command costs a script more than what it does.
"""

from __future__ import annotations

__all__ = ["CLAIM", "HASH_APPLY", "JSON_APPLY", "JSON_REPLACE"]

# KEYS: rows, each once, at most some thousands. ARGV: length of the keys' common head, the younger and the
# elder hash of tombstones, a tombstone's life in ms, the hash that counts rows, the hash that notes those
# that come and go while their keys are walked over (empty where nobody does), then one value per key: the
# row; or a delete's bare version; or that version and a "<", which removes only what is older, as a truncate
# does. A row is longer than either. The values of hashes are arguments, those of documents lines of one, each
# after a line feed.

# Variables are local and tables are filled by number: to look for a global or for a table's end takes as long
# as a good part of a command.

# What is known of each key, and what is told of it at the end.
_BEGIN = """
local call, try, sub, keys = redis.call, redis.pcall, string.sub, KEYS
local cut, young, elder, life = tonumber(ARGV[1]) + 1, ARGV[2], ARGV[3], tonumber(ARGV[4])
local counts, notes, count = ARGV[5], ARGV[6], #keys
local letters, reasons = {}, {}
-- The version of the row that stands there, or of its tombstone; whether there is no row.
local olds, missing = {}, {}
-- Ids of tombstones whose row is there again.
local fallen, rising = {}, 0
local made, removed = 0, 0

local function refused(i, failure)
  letters[i], reasons[i] = 'E', failure.err
end

-- Rejects a key whose value is not what a row is kept in.
local function unlike(i, failure)
  if string.find(failure.err, 'WRONGTYPE', 1, true) then letters[i] = 'T' else refused(i, failure) end
end

local ids, whose, sought = {}, {}, 0
if call('EXISTS', unpack(keys)) == 0 then
  sought = count
  for i = 1, count do ids[i], whose[i], missing[i] = sub(keys[i], cut), i, true end
else
  for i = 1, count do
    local found, gone = nil, false
"""

# Here each layout looks for the row `i`: sets `olds[i]`, or that it is missing, or its letter.

_LOOK = """
    if gone then
      sought = sought + 1
      ids[sought], whose[sought], missing[i] = sub(keys[i], cut), i, true
    end
  end
end
if sought > 0 and call('EXISTS', young, elder) > 0 then
  local younger, older = call('HMGET', young, unpack(ids)), call('HMGET', elder, unpack(ids))
  for n = 1, sought do olds[whose[n]] = younger[n] or older[n] end
end
"""

# Here each layout defines `values`.

_DECIDE = """
local burials, dying, m = {}, {}, 0
for i = 1, count do
  if not letters[i] then
    local value, old = values[i], olds[i]
    local size = #value
    if size <= 20 then
      local version = size == 19 and value or sub(value, 1, 19)
      if old and (old > version or (size == 20 and old == version)) then letters[i] = 'S'
      else
        letters[i] = 'A'
        m = m + 1
        dying[m], burials[2 * m - 1], burials[2 * m] = i, sub(keys[i], cut), version
      end
    else
"""

# Here each layout writes `value` unless `old` is newer, and says so. A write that is refused is so before
# anything of its row is removed.

_END = """
    end
  end
end
if m > 0 then
  -- It ends by itself, too: a table that has no deletes any more keeps none for ever.
  local left = call('PTTL', young)
  if left >= 0 and left <= 2 * life then
    call('UNLINK', elder)
    call('RENAME', young, elder)
    left = -2
  end
  if left < 0 then
    -- No id is empty. A value of this length makes Redis keep a table from the start, not a list.
    burials[2 * m + 1], burials[2 * m + 2] = '', string.rep('-', 65)
  end
  local answer = try('HSET', young, unpack(burials))
  if type(answer) == 'table' then
    for n = 1, m do refused(dying[n], answer) end
  else
    if left < 0 then call('PEXPIRE', young, 3 * life) end
    local dead, n = {}, 0
    for l = 1, m do
      local i = dying[l]
      if not missing[i] then n = n + 1; dead[n] = keys[i] end
    end
    if n > 0 then removed = call('DEL', unpack(dead)) end
  end
end
"""

_TELL = """
if rising > 0 then
  call('HDEL', young, unpack(fallen, 1, rising))
  call('HDEL', elder, unpack(fallen, 1, rising))
end
if made + removed > 0 then
  local head = sub(keys[1], 1, cut - 1)
  if made > 0 then try('HINCRBY', counts, head .. '+', made) end
  if removed > 0 then try('HINCRBY', counts, head .. '-', removed) end
  if notes ~= '' and call('EXISTS', notes) == 1 then
    local told, n = {}, 0
    for i = 1, count do
      local gone = #values[i] <= 20
      if letters[i] == 'A' and gone ~= (missing[i] or false) then
        told[n + 1], told[n + 2] = keys[i], gone and '0' or '1'
        n = n + 2
      end
    end
    local answer = n > 0 and try('HSET', notes, unpack(told))
    -- Without them the walk counts nothing.
    if type(answer) == 'table' or call('HLEN', notes) > 200000 then call('DEL', notes) end
  end
end
local answer = {table.concat(letters)}
if next(reasons) then
  for i = 1, count do answer[#answer + 1] = reasons[i] end
end
return answer
"""

# A row is its document, which begins with its version.
_JSON_LOOK = """
    found = try('GETRANGE', keys[i], 0, 32)
    if found == '' then gone = true
    elseif type(found) == 'table' then unlike(i, found)
    elseif sub(found, 1, 14) == '{"_headrace":"' then olds[i] = sub(found, 15)
    else letters[i] = 'T' end
"""

_JSON_VALUES = """
local values, text, at = {}, ARGV[7], 2
local find, size = string.find, #ARGV[7]
for i = 1, count do
  local stop = find(text, '\\n', at, true) or size + 1
  values[i] = sub(text, at, stop - 1)
  at = stop + 1
end
local rows, whose, n = {}, {}, 0
"""

_JSON_WRITE = """
      if old and old > sub(value, 15, 33) then letters[i] = 'S'
      else
        letters[i] = 'A'
        n = n + 1
        whose[n], rows[2 * n - 1], rows[2 * n] = i, keys[i], value
        if missing[i] then
          made = made + 1
          if old then rising = rising + 1; fallen[rising] = sub(keys[i], cut) end
        end
      end
"""

_JSON_ALL = """
if n > 0 then
  local answer = try('MSET', unpack(rows))
  if answer.err then
    rising, made = 0, 0
    for m = 1, n do refused(whose[m], answer) end
  end
end
"""

JSON_APPLY = _BEGIN + _JSON_LOOK + _LOOK + _JSON_VALUES + _DECIDE + _JSON_WRITE + _END + _JSON_ALL + _TELL

# A row is a sequence of msgpack values: its version; f(ull) or p(art of one); the fields that are to be
# empty, or nil; then field and value in turn, the version's and the origin's first.
_HASH_LOOK = """
    found = try('HGET', keys[i], '_headrace')
    if type(found) == 'table' then unlike(i, found)
    elseif found then olds[i] = found
    elseif call('EXISTS', keys[i]) == 0 then gone = true
    else letters[i] = 'T' end
"""

_HASH_VALUES = """
local values = {select(7, unpack(ARGV))}

-- The arguments of a call are limited to some thousands: columns of Postgres, twice, are fewer.
local function write(i, old, version, mode, unset, ...)
  local key, gone = keys[i], missing[i]
  if old and old > version then letters[i] = 'S'
  elseif gone and mode == 'p' then letters[i] = 'M'
  else
    local answer = try('HSET', key, ...)
    if type(answer) == 'table' then return refused(i, answer) end
    letters[i] = 'A'
    if gone then
      made = made + 1
      if old then rising = rising + 1; fallen[rising] = sub(key, cut) end
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
"""

_HASH_WRITE = """
      write(i, old, cmsgpack.unpack(value))
"""

HASH_APPLY = _BEGIN + _HASH_LOOK + _LOOK + _HASH_VALUES + _DECIDE + _HASH_WRITE + _END + _TELL

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
