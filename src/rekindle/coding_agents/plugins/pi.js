const CUSTOM_TYPE = "rekindle"

const identify = (ctx) => ({
  session_id: ctx.sessionManager.getSessionId(),
  transcript_path: ctx.sessionManager.getSessionFile(),
  cwd: ctx.sessionManager.getCwd(),
})

export default function (pi) {
  pi.on(
    "session_start",
    guard(async (event, ctx) => {
      const content = await askHook("start", { ...identify(ctx), source: event.reason })
      if (content) pi.sendMessage({ customType: CUSTOM_TYPE, content, display: false })
    }),
  )

  pi.on(
    "before_agent_start",
    guard(async (event, ctx) => {
      const content = await askHook("prompt", { ...identify(ctx), prompt: event.prompt })
      if (content) return { message: { customType: CUSTOM_TYPE, content, display: false } }
    }),
  )

  if (COMMANDS.call)
    pi.on(
      "tool_call",
      guard(async (event, ctx) => {
        if (event.toolName !== "bash") return
        const reason = await askHook("call", {
          ...identify(ctx),
          tool_name: event.toolName,
          tool_input: event.input,
          tool_use_id: event.toolCallId,
        })
        if (reason) return { block: true, reason }
      }),
    )

  pi.on(
    "tool_result",
    guard(async (event, ctx) => {
      if (!event.isError) return
      const text = await askHook("failure", {
        ...identify(ctx),
        tool_name: event.toolName,
        tool_input: event.input,
        tool_use_id: event.toolCallId,
        error: event.content.map((part) => part.text ?? "").join("\n"),
      })
      if (text) return { content: [...event.content, { type: "text", text }] }
    }),
  )

  pi.on(
    "session_before_compact",
    guard(async (event, ctx) => notifyHook("compact", { ...identify(ctx), trigger: event.reason })),
  )

  pi.on(
    "session_shutdown",
    guard(async (event, ctx) => notifyHook("end", { ...identify(ctx), reason: event.reason })),
  )
}
