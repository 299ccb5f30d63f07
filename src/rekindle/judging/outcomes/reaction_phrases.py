"""The phrases with which people approve, correct, reject or keep the work of an agent.

One expression per line, in lower case and without punctuation. They are compared with the beginning of
a clause, never searched for inside a text.
"""

from __future__ import annotations

import re


def _parse_phrases(table: str) -> frozenset[str]:
    """Return the phrases of a table, which are separated by `|`."""
    return frozenset(
        phrase for part in table.replace("\n", "|").split("|") if (phrase := " ".join(part.split()))
    )


def _compile_lines(table: str, before: str = "") -> re.Pattern[str]:
    """Compile a table of expressions that may match at the beginning of a clause, behind `before`."""
    lines = [line.strip() for line in table.strip().splitlines()]
    return re.compile(f"{before}(?:{'|'.join(lines)})")


# Whole clauses that approve.
APPROVALS = _parse_phrases(
    """
    thanks|thank you|thank you so much|thank you very much|many thanks|thx|ty|cheers|perfect|great
    great job|great work|good job|good work|nice|nice one|nice work|nice job|well done|awesome
    excellent|amazing|brilliant|fantastic|wonderful|beautiful|lovely|love it|i love it|lgtm|looks good
    looks good to me|looks great|looks perfect|this looks good|that looks good|it looks good
    this looks great|that looks great|works|it works|it works now|that works|that works now|this works
    works now|works great|works perfectly|works like a charm|that worked|it worked|this worked|all good
    all green|tests pass|tests pass now|all tests pass|that fixed it|that did it|fixed|problem solved
    exactly|exactly what i wanted|that's it|that's perfect|that's great|that is perfect|this is great
    this is perfect|cool|sweet|super|ship it|we're good|we are good|good to go|yay|nailed it
    much better|that's better
    danke|vielen dank|danke dir|perfekt|klasse|passt|passt so|sieht gut aus|funktioniert
    funktioniert jetzt|es funktioniert|läuft|läuft jetzt|sehr gut|prima|genau so|top
    merci|merci beaucoup|parfait|ça marche|ça fonctionne|c'est bon|très bien|génial|nickel
    gracias|muchas gracias|perfecto|funciona|ya funciona|genial|excelente|muy bien|todo bien
    obrigado|obrigada|valeu|perfeito|funcionou|está funcionando|muito bom|ótimo
    grazie|grazie mille|perfetto|funziona|ora funziona|ottimo|benissimo
    bedankt|dank je|werkt|het werkt|prima zo
    спасибо|отлично|работает|всё работает|идеально|супер
    谢谢|多谢|完美|很好|可以了|成功了|没问题了|太好了|ありがとう|ありがとうございます|完璧です
    動きました|うまくいきました|감사합니다|고마워|완벽해|잘 됩니다
    """
)
_NEGATED = r"(?:doesn't|does not|didn't|did not|don't|isn't|is not|won't|can't)"
_SUBJECT = r"(?!(?:what|which|why|where|when|if|add|fix|handle|check|see|for) )(?:\S+ ){0,4}"
CORRECTION = _compile_lines(
    rf"""
    (?:that|this|it)(?:'s| is| was) (?:still |just )?(?:wrong|incorrect|broken)\b
    (?:that|this|it)(?:'s| is| was) (?:still )?not (?:right|correct|working|true|it|fixed|what [iw]e?)\b
    (?:that|this|it) (?:still )?{_NEGATED} (?:even )?(?:work|working|compile|build|fix|help|right)\b
    (?:that|this|it) (?:still )?{_NEGATED} (?:correct|look right|make sense|pass|start|seem)\b
    {_SUBJECT}still (?:fails?|failing|broken|red|wrong|the same|happen\w*|throws?|crash\w*)\b
    {_SUBJECT}still (?:doesn't|does not) \w
    (?:it|this|that|they)(?:'s| is| are) still \w+ing\b
    {_SUBJECT}still (?:not|isn't) (?:work|fix|right|correct|pass|show)
    (?:(?:i|we|i'm|i am|we're) )?still (?:get|getting|see|seeing|have|having)\b
    not (?:working|fixed|right|quite|what i|correct|like (?:this|that))\b
    (?:the )?(?:\w+ )?(?:tests?|ci|build|lint(?:ing)?) (?:(?:is|are) )?fail(?:s|ed|ing)?(?: now)?$
    (?:the )?(?:\w+ )?(?:tests?|ci|build|lint(?:ing)?) (?:is|are) (?:red|broken)(?: now)?$
    wrong\b
    incorrect$
    nope\b
    no no\b
    try again$
    you (?:broke|forgot|missed|misunderstood|ignored|didn't|did not|are wrong|just broke)\b
    you (?:removed|deleted) the\b
    you're (?:wrong|not listening|going in circles)\b
    why (?:did|are|have) you\b
    (?:i|we) (?:said|told you|already told|didn't (?:ask|want|mean|say)|did not (?:ask|want|mean|say))\b
    (?:i )?(?:don't|do not) (?:like|want) (?:this|that|it)\b
    same (?:error|issue|problem|result)\b
    (?:das ist )?(?:falsch|nicht richtig|immer noch)\b
    (?:(?:das|es) )?(?:geht|funktioniert|klappt) (?:immer noch )?nicht\b
    c'est (?:faux|pas bon)\b
    ça (?:ne )?(?:marche|fonctionne) (?:toujours )?pas\b
    toujours (?:pas|la même)\b
    (?:no funciona|sigue (?:sin|fallando)|está mal|eso no|todavía no)\b
    (?:não funciona|não funcionou|ainda não|está errado)\b
    (?:non funziona|ancora non|è sbagliato|sbagliato)\b
    (?:het )?werkt (?:nog steeds )?niet\b
    (?:klopt niet|nog steeds)\b
    (?:не работает|всё ещё|неправильно|не то)\b
    不对|错了|还是不行|不行|还是报错|不是这样
    違います|動かない|動きません
    아직도|틀렸
    """
)
_ORDER = r"(?:(?:no|ok|okay|please|pls|can you|could you|let's|lets|just|actually) ){0,3}"
REJECTION = _compile_lines(
    r"""
    (?:revert|undo|discard|throw away|roll ?back|back out) (?:this|that|it|these|those|all|everything)\b
    (?:revert|undo|discard|throw away|roll ?back|back out) (?:your|the (?:last )?(?:change|commit|edit))
    (?:revert|undo|rollback|roll back)$
    (?:nevermind|never mind|forget (?:it|about it|that))$
    stop(?: (?:it|that|this|here|now|please))?$
    abort(?: this)?$
    cancel(?: (?:it|that|this))?$
    mach das rückgängig|rückgängig|vergiss es
    annule (?:ça|tout)|deshaz|desfaz|annulla
    отмени|откати
    撤销|回滚|元に戻して
    """,
    _ORDER,
)
_GO_ON = (
    r"(?:(?:ok|okay|yes|yep|yeah|great|good|cool|perfect|now|please|pls|can you|could you|and|let's"
    r"|lets|go ahead(?: and)?|just|then|so|sure) ){0,4}"
)
# The user has the work committed, pushed or merged.
_KEEP_VERB = "(?:commit|push|merge|ship|squash|land|amend)"
_OPEN_A = "(?:open|create|make|submit) (?:a |the |an )?(?:draft )?"
KEEP = _compile_lines(
    rf"""
    {_KEEP_VERB}$
    {_KEEP_VERB} and (?:push|commit|merge|open|create)\b
    {_KEEP_VERB} (?:it|this|that|these|them|the|all|changes?|everything)\b
    {_KEEP_VERB} (?:what|to|please|now|on|your|only)\b
    (?:comit|do a commit|make a commit)$
    {_OPEN_A}(?:pr|mr|pull request|merge request)$
    {_OPEN_A}(?:pr|mr|pull request) (?:for|on|with|to|and|now)\b
    """,
    _GO_ON,
)
