"""The rules that judge a tool call, one subject per file.

    verdict.py     what a rule says, and whose mistake it was
    evidence.py    what a rule may look at: the call, its result, the protocol's facts
    shell.py       takes a shell command apart: which of its commands decides how it ends
    programs.py    what programs are for: searches, tests, linters, readers
    protocol.py    what the protocol says beside the text
    contract.py    what a tool promises to say: exit codes and flags in its text or JSON
    meaning.py     what an exit code means for the command that gave it
    phrases.py     the sentences with which harnesses and tools begin a result that failed
    output.py      judges a command by what it wrote, where nobody tells its exit code,
    complaint.py   by the complaints of shells and small tools
    signatures.py  and by what test runners, compilers and clients write when they fail
    wording.py     the form in which phrases and signatures are written down

They are asked in the order of trust: protocol, contract, meaning, anchored text. The tables are
open to new wordings; each declares the transcripts it was written after, if any.
"""
