export const Rekindle = async ({ directory }) => {
  const starts = new Map() // session id: what its start hook answered, the same for every request
  const failures = new Map() // call id: what the hook answered to a tool that threw an error
  const unsaved = new Set() // sessions with messages since their last end
  const identify = (sessionID) => ({ session_id: sessionID, cwd: directory })

  const save = (sessionID) => {
    if (unsaved.delete(sessionID)) notifyHook("end", identify(sessionID))
  }
  const askOnce = (answers, key, event, fields) => {
    if (!answers.has(key)) answers.set(key, askHook(event, fields))
    return answers.get(key)
  }

  return {
    "experimental.chat.system.transform": guard(async (input, output) => {
      if (!input.sessionID) return
      const text = await askOnce(starts, input.sessionID, "start", identify(input.sessionID))
      if (text) output.system.push(text)
    }),

    "chat.message": guard(async (input, output) => {
      const first = output.parts[0]
      if (!first) return
      unsaved.add(first.sessionID)
      const prompt = output.parts
        .filter((part) => part.type === "text" && !part.synthetic)
        .map((part) => part.text)
        .join("\n")
      const text = await askHook("prompt", { ...identify(first.sessionID), prompt })
      if (!text) return
      const { sessionID, messageID } = first
      output.parts.push({ id: `${first.id}r`, sessionID, messageID, type: "text", text, synthetic: true })
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
          const text = await askOnce(failures, part.callID, "failure", {
            ...identify(part.sessionID),
            tool_name: part.tool,
            tool_input: part.state.input,
            tool_use_id: part.callID,
            error: part.state.error,
          })
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
