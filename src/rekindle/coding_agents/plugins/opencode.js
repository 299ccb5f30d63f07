import { homedir } from "node:os"
import { join, resolve } from "node:path"

const findDatabase = () => {
  const data = process.env.XDG_DATA_HOME || join(homedir(), ".local", "share")
  return resolve(data, "opencode", process.env.OPENCODE_DB || "opencode.db")
}

export const Rekindle = async ({ directory }) => {
  const begun = new Set() // sessions whose start hook has run
  const failures = new Map() // call id: what the hook answered to a tool that threw an error
  const unsaved = new Set() // sessions with messages since their last end
  const identify = (sessionID) => ({
    session_id: sessionID,
    transcript_path: findDatabase(),
    cwd: directory,
  })

  const save = (sessionID) => {
    if (unsaved.delete(sessionID)) notifyHook("end", identify(sessionID))
  }
  const addText = (parts, text) => {
    const { id, sessionID, messageID } = parts.at(-1)
    if (text) parts.push({ id: `${id}r`, sessionID, messageID, type: "text", text, synthetic: true })
  }

  const askCall = guard(async (input, output) => {
    if (input.tool !== "bash") return
    return await askHook("call", {
      ...identify(input.sessionID),
      tool_name: input.tool,
      tool_input: output.args,
      tool_use_id: input.callID,
    })
  })
  const beforeCall = {
    // To throw an error is the only way to stop a call.
    "tool.execute.before": async (input, output) => {
      const reason = await askCall(input, output)
      if (reason) throw new Error(reason)
    },
  }

  return {
    ...(COMMANDS.call ? beforeCall : {}),

    // The start of a session as well: what is added to its first message stays in the session.
    "chat.message": guard(async (input, output) => {
      const { parts } = output
      if (!parts.length) return
      const sessionID = parts[0].sessionID
      const prompt = parts
        .filter((part) => part.type === "text" && !part.synthetic)
        .map((part) => part.text)
        .join("\n")
      unsaved.add(sessionID)
      const deadline = Date.now() + LIMIT_MS
      if (!begun.has(sessionID)) {
        begun.add(sessionID)
        addText(parts, await askHook("start", { ...identify(sessionID), source: "startup" }))
      }
      const rest = deadline - Date.now()
      addText(parts, await askHook("prompt", { ...identify(sessionID), prompt }, rest))
    }),

    // A tool that ran and failed.
    "tool.execute.after": guard(async (input, output) => {
      const exit = output.metadata?.exit
      const hasFailed = (typeof exit === "number" && exit !== 0) || output.isError === true
      if (!hasFailed) return
      const text = await askHook("failure", {
        ...identify(input.sessionID),
        tool_name: input.tool,
        tool_input: input.args,
        tool_use_id: input.callID,
        exit_code: exit,
        error: output.output ?? JSON.stringify(output.content),
      })
      if (!text) return
      if (Array.isArray(output.content)) output.content.push({ type: "text", text })
      else output.output += `\n${text}`
    }),

    // A tool that threw an error comes here only, before every request that has it.
    "experimental.chat.messages.transform": guard(async (input, output) => {
      const last = output.messages.findLast(({ info }) => info.role === "assistant")
      for (const message of output.messages)
        for (const part of message.parts) {
          if (part.type !== "tool" || part.state.status !== "error") continue
          if (message !== last && !failures.has(part.callID)) continue
          if (!failures.has(part.callID))
            failures.set(
              part.callID,
              await askHook("failure", {
                ...identify(part.sessionID),
                tool_name: part.tool,
                tool_input: part.state.input,
                tool_use_id: part.callID,
                error: part.state.error,
              }),
            )
          const text = failures.get(part.callID)
          if (text) part.state.error += `\n${text}`
        }
    }),

    "experimental.session.compacting": guard(async (input) => {
      notifyHook("compact", identify(input.sessionID))
    }),

    event: guard(async ({ event }) => {
      if (event.type === "session.idle") save(event.properties.sessionID)
    }),

    dispose: guard(async () => [...unsaved].forEach(save)),
  }
}
