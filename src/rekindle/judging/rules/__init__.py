"""Rules that judge a tool call, one subject per file.

    verdict.py           the outcome a rule returns, and whose fault it was
    evidence.py          what a rule may inspect: the call, its result, protocol metadata
    deciding_commands.py finds the commands that decide an exit code
    programs.py          classifies programs: searches, tests, linters, readers
    protocol.py          metadata beside the text: flags, exit codes, statuses
    tool_contract.py     exit codes and flags that a tool reports in its text or JSON
    exit_codes.py        the meaning of a non-zero exit code for a given command
    phrases.py           sentences that open a failed result of a harness or tool
    command_output.py    judges a command by its output when no exit code is known, using
    error_lines.py       error lines of shells and small tools,
    signatures.py        and failure messages of test runners, compilers and clients
    text_patterns.py     the format of phrases and signatures

Rules run in order of trust: protocol, contract, exit codes, anchored text. The tables are meant to
be extended; each entry names the transcripts it was derived from, if any.
"""
