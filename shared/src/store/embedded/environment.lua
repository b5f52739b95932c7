-- Completes what a script sees: `redis`, and globals that can be neither invented nor replaced.
--   command  runs one command and returns its reply; an error is a table {err = text}
--   globals  the table of globals, already reduced to the allowed names
-- Returns a function that runs a compiled script and returns its result, or {err = text}.

local command, globals = ...
local error, getmetatable, setmetatable = error, getmetatable, setmetatable
local match, pcall, tostring, type, xpcall = string.match, pcall, tostring, type, xpcall

string.dump = nil
math.random = nil
math.randomseed = nil

local redis = { pcall = command }

function redis.call(...)
  local reply = command(...)
  if type(reply) == 'table' and reply.err then
    error(reply, 0)
  end
  return reply
end

function redis.status_reply(...)
  if select('#', ...) ~= 1 or type(...) ~= 'string' then
    return { err = 'ERR wrong number or type of arguments' }
  end
  return { ok = (...) }
end

function redis.error_reply(...)
  if select('#', ...) ~= 1 or type(...) ~= 'string' then
    return { err = 'ERR wrong number or type of arguments' }
  end
  local text = match((...), '^%-?(.*)$')
  if match(text, '^%S+ ') then
    return { err = text }
  end
  return { err = 'ERR ' .. text }
end

globals.redis = redis

-- An error that is a table of ours reaches its catcher as text, as in Redis.
local function caught(ok, problem, ...)
  if not ok and type(problem) == 'table' and problem.err then
    return ok, problem.err
  end
  return ok, problem, ...
end

function globals.pcall(...)
  return caught(pcall(...))
end

getmetatable('').__metatable = false

setmetatable(globals, {
  __index = function(_, name)
    error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
  end,
  __newindex = function()
    error('Attempt to modify a readonly table', 2)
  end,
  __metatable = false,
})

local function as_table(problem)
  if type(problem) == 'table' then
    return problem
  end
  return { err = 'ERR ' .. tostring(problem) }
end

return function(script)
  local _, result = xpcall(script, as_table)
  return result
end
