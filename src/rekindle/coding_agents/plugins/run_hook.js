import { spawn } from "node:child_process"

const LIMIT_MS = 1000 // that the agent waits for an answer
const MAX_TEXT = 100_000 // characters of one field of an event

const shorten = (key, value) =>
  typeof value === "string" && value.length > MAX_TEXT ? value.slice(0, MAX_TEXT) : value

// A group of its own, so that all of it can be stopped, and so that it outlives the agent.
const startHook = (event, fields, output) => {
  const child = spawn(COMMANDS[event], {
    shell: true,
    detached: true,
    stdio: ["pipe", output, "ignore"],
  })
  child.on("error", () => {})
  child.stdin.on("error", () => {})
  child.stdin.end(JSON.stringify({ hook_event_name: event, ...fields }, shorten))
  return child
}

const stopHook = (child) => {
  try {
    process.kill(-child.pid, "SIGKILL")
  } catch {} // it has ended
}

// What to add, or why a call is not run.
const readText = (answer) => {
  try {
    const { decision, reason, hookSpecificOutput } = JSON.parse(answer)
    const text = decision === "deny" ? reason : hookSpecificOutput.additionalContext
    return typeof text === "string" ? text : ""
  } catch {
    return ""
  }
}

// Run the hook of an event and return its text, or "" if there is none within the limit.
const askHook = (event, fields, limit = LIMIT_MS) =>
  new Promise((resolve) => {
    try {
      const child = startHook(event, fields, "pipe")
      let answer = ""
      const timer = setTimeout(() => {
        stopHook(child)
        resolve("")
      }, limit)
      const finish = (text) => {
        clearTimeout(timer)
        resolve(text)
      }
      child.stdout.setEncoding("utf8")
      child.stdout.on("error", () => {})
      child.stdout.on("data", (text) => (answer += text))
      child.on("error", () => finish(""))
      child.on("close", () => finish(readText(answer)))
    } catch {
      resolve("")
    }
  })

// Run the hook of an event without waiting for it.
const notifyHook = (event, fields) => {
  try {
    startHook(event, fields, "ignore").unref()
  } catch {}
}

// Whatever goes wrong in a hook is no concern of the agent.
const guard =
  (handle) =>
  async (...given) => {
    try {
      return await handle(...given)
    } catch {}
  }
