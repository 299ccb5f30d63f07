"""Detects tokens of known providers in long runs of letters and digits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple

from rekindle.redaction.scanner import (
    NO_SPANS,
    RedactionSpan,
    ScanInput,
    can_start_token,
    make_secret_span,
)

from .entropy import compute_entropy, is_digest, is_placeholder, is_random

_ALPHABETS = {
    "@end": "(?![A-Za-z0-9])",
    "@a": "[A-Za-z0-9]",
    "@w": "[A-Za-z0-9_-]",
    "@h": "[A-Za-z0-9-]",
    "@x": "[0-9a-f]",
    "@d": "[A-Za-z0-9_=.-]",
    "@b": "[A-Za-z0-9+/=]",
    "@c": "[A-Za-z0-9+/=_-]",
}

_SHAPE_TABLE = r"""
# clouds and hosting
aws-key        AKIA,ASIA,ABIA,ACCA,AROA,AIDA,AGPA,AIPA,ANPA,ANVA  [A-Z0-9]{16}@end
aws-bedrock-key ABSK  [A-Za-z0-9+/]{60,300}={0,2}
google-key     AIza  @w{35}
google-oauth   GOCSPX-  @w{20,40}
google-oauth   ya29.  [A-Za-z0-9_.-]{20,400}
google-oauth   1//  0@w{30,200}
digitalocean   dop_v1_,doo_v1_,dor_v1_  @x{40,80}
heroku         HRKU-  @w{30,120}
fly            fo1_  @w{30,80}
fly            fm1a_,fm1r_,fm2_  [A-Za-z0-9+/=_,-]{40,2000}
alibaba-key    LTAI  @a{12,26}
tencent-key    AKID  @a{28,36}
cloudflare     v1.  0-@x{24}-@x{100,160}
cloudflare     cfut_,cfat_,cfk_  @w{32,80}
vercel         vcp_,vci_,vca_,vck_,vcr_  @a{20,80}
netlify        nfp_,nfc_,nfo_,nfu_,nfb_  @a{36,50}
render         rnd_  @a{28,40}
railway        rw_  @w{30,80}
scaleway       SCW  [A-Z0-9]{17}@end
ibm-key        ibm_  @w{40,60}
planetscale    pscale_tkn_,pscale_pw_,pscale_oauth_  @d{30,70}
supabase       sbp_,sb_secret_,sbs_  @w{20,60}
neon           napi_  @a{40,70}
databricks     dapi,dose,dkea  @x{32}(?:-\d)?@end
snowflake      ver:1-hint:  [A-Za-z0-9+/=-]{40,400}
pulumi         pul-  @x{40}
upstash        AXX  [A-Za-z0-9+/]{40,80}={1,2}
turso          trs_  @w{40,80}
# hosts of code, registries of packages, CI
github         ghp_,gho_,ghu_,ghs_,ghr_  @a{36,255}
github         github_pat_  [A-Za-z0-9_]{40,255}
gitlab         glpat-,gldt-,glrt-,glcbt-,glptt-,glft-,glimt-  @d{20,300}
gitlab         glagent-,gloas-,glsoat-,glffct-,GR1348941  @d{20,300}
bitbucket      ATBB,ATCTT3xFf  @d{24,300}
atlassian      ATATT3xFf,ATOA  @d{40,400}
gitea          gta_  @a{30,64}
npm            npm_  @a{36,40}
pypi           pypi-  @w{50,400}
rubygems       rubygems_  @x{40,60}
crates         cio  @a{32}@end
clojars        CLOJARS_  @a{50,70}
nuget          oy2  [a-z0-9]{43}@end
docker         dckr_pat_,dckr_oat_  @w{20,50}
artifactory    AKCp  @a{60,80}
artifactory    cmVmdGtu  @a{50,70}
circleci       CCIPAT_,CCIPRJ_  @w{30,80}
buildkite      bkua_,bkct_,bkat_  @w{32,60}
jenkins        jenkins_  @w{32,64}
sonar          sqp_,sqa_,squ_,sqb_  @x{40}
codecov        codecov_  @w{30,60}
snyk           snyk_  [A-Za-z0-9_.-]{30,120}
doppler        dp.pt.,dp.st.,dp.ct.,dp.sa.,dp.scim.,dp.audit.  [A-Za-z0-9.]{40,80}
infisical      st.  @x{24}\.@x{32}\.@x{32}
1password      ops_eyJ  [A-Za-z0-9_=-]{80,2000}
1password      A3-  [A-Z0-9]{6}-(?:[A-Z0-9]{5,6}-){3,4}[A-Z0-9]{5}
vault          hvs.,hvb.,hvr.  @w{24,300}
vault          s.  @a{24}@end
terraform      atlasv1.  @w{40,100}
# models
anthropic      sk-ant-  @w{20,300}
openai         sk-proj-,sk-svcacct-,sk-admin-,sk-None-  @w{20,300}
openrouter     sk-or-v1-,sk-or-  @w{20,100}
model-key      sk-lf-,pk-lf-,sk-kimi-,sk-litellm-  @w{20,100}
openai         sk-  (?=[A-Za-z-]{0,60}\d)@a@w{19,200}
openai-session sess-  @a{40}
huggingface    hf_,api_org_  @a{30,60}
replicate      r8_  @a{36,44}
groq           gsk_  @a{40,60}
xai            xai-  @a{40,100}
perplexity     pplx-  @a{40,60}
nvidia         nvapi-  @w{50,80}
fireworks      fw_  @a{22,40}(?![A-Za-z0-9_])
cerebras       csk-  @a{40,60}
tavily         tvly-  @w{20,60}
exa            exa_  @w{30,60}
firecrawl      fc-  @x{32}
jina           jina_  @w{40,80}
voyage         pa-  @w{40,60}(?!@w)
pinecone       pcsk_  [A-Za-z0-9_]{40,100}
langsmith      lsv2_pt_,lsv2_sk_,ls__  [A-Za-z0-9_]{30,80}
elevenlabs     sk_  @x{48}@end
e2b            e2b_  @x{40}
wandb          wandb_v1_  @w{40,100}
cohere         co_  @a{38,44}(?![A-Za-z0-9_])
together       tgp_v1_  @w{40,60}
# chat and mail
slack          xoxb-,xoxa-,xoxp-,xoxr-,xoxs-,xoxo-,xoxe-,xoxc-,xoxd-  [A-Za-z0-9%/+_.-]{16,400}
slack          xapp-,xwfp-  @h{30,200}
discord        mfa.  @w{60,100}
mattermost     mm_  [a-z0-9]{26}@end
matrix         syt_  @c{24,120}
line           LINE_  @b{60,200}
sendgrid       SG.  @w{16,24}\.@w{30,50}
mailgun        key-,pubkey-  @x{32}@end
mailersend     mlsn.  @x{50,70}
brevo          xkeysib-,xsmtpsib-  @x{64}-@a{16}
resend         re_  @a{8}_@a{20,30}
postman        PMAK-  @x{24}-@x{34}
twilio         SK,AC  @x{32}@end
facebook       EAA  @a{60,300}
instagram      IGQV,IGAA  @w{60,300}
twitter        AAAAAAAAAAAAAAAAAAAAA  [A-Za-z0-9%]{40,200}
linkedin       WPL_AP  [A-Za-z0-9_.=/+-]{16,100}
intercom       dG9rO  @b{40,100}
# money and shops
stripe         sk_live_,sk_test_,rk_live_,rk_test_,sk_org_  [A-Za-z0-9_]{16,260}
stripe         whsec_,ek_live_,ek_test_  [A-Za-z0-9+/=_]{16,260}
square         sq0atp-,sq0csp-,sq0idp-,sq0csb-  @w{22,60}
square         EAAA  @w{60}(?!@w)
shopify        shpat_,shpca_,shppa_,shpss_,shptka_  [A-Fa-f0-9]{32}
plaid          access-sandbox-,access-development-,access-production-  @x{8}-(?:@x{4}-){3}@x{12}
adyen          AQE  [A-Za-z0-9+/=._-]{60,300}
razorpay       rzp_live_,rzp_test_  @a{14,24}
flutterwave    FLWSECK_TEST-,FLWSECK-  @h{12,64}
coinbase       organizations/  [0-9a-f-]{36}/apiKeys/[0-9a-f-]{36}
lob            live_,test_  @x{35,40}@end
easypost       EZAK,EZTK  @a{54}
duffel         duffel_live_,duffel_test_  [A-Za-z0-9_=-]{40,60}
paddle         pdl_live_,pdl_sdbx_  [A-Za-z0-9_]{40,90}
# work, monitoring, data
atlassian      ATCTT3  @d{40,400}
notion         secret_,ntn_  @a{40,60}
linear         lin_api_,lin_oauth_,lin_wh_  @a{32,64}
figma          figd_,figo_,figu_  @w{38,60}
clickup        pk_  \d{5,12}_[A-Z0-9]{30,40}
zapier         zpka_  @w{30,60}
typeform       tfp_  @d{40,70}
contentful     CFPAT-  @w{43}
sentry         sntrys_  [A-Za-z0-9+/=_]{60,400}
sentry         sntryu_,sntrya_  @x{64}
datadog        ddapp_,ddpat_  @w{30,80}
newrelic       NRAK-,NRJS-,NRIQ-,NRSP-,NRII-,NRRA-  @w{19,42}
grafana        glc_,glsa_  [A-Za-z0-9_+/=]{32,400}
dynatrace      dt0c01.,dt0s16.,dt0s01.  [A-Z0-9]{8,24}\.[A-Z0-9]{64}
honeycomb      hcaik_,hcaic_,hcalk_,hcamk_  [a-z0-9]{30,64}
posthog        phx_,phs_,phc_  @a{40,50}
pagerduty      pdus+  [A-Za-z0-9_+-]{16,40}
launchdarkly   sdk-,mob-,api-  @x{8}-(?:@x{4}-){3}@x{12}
algolia        algolia_  @x{32}
elastic        essu_  @c{40,200}
prefect        pnu_,pnb_  @a{36}
readme         rdme_  @a{60,80}
frameio        fio-u-  [A-Za-z0-9_=-]{64}
tailscale      tskey-  @h{20,120}
ngrok          ngrok_  @w{30,60}
hubspot        pat-na1-,pat-eu1-,pat-na2-,pat-ap1-  @x{8}-(?:@x{4}-){3}@x{12}
okta           00  (?=@w*[a-z])(?=@w*[A-Z])@w{40}(?!@w)
shippo         shippo_live_,shippo_test_  @x{40}
mapbox         pk.eyJ,sk.eyJ,tk.eyJ  @w{30,200}\.@w{20,60}
age-key        AGE-SECRET-KEY-1,AGE-PLUGIN-  [A-Z0-9-]{40,90}
nkey           SU,SA,SO,SN  [A-Z2-7]{56}@end
tinybird       p.eyJ  @w{20,200}(?:\.@w{20,100}){1,2}
jwt            eyJ  @w{8,4000}\.eyJ@w{4,8000}(?:\.@w{0,4000})?
jwt            eyJ  @w{16,4000}\.@w{0,1000}\.@w{10,200}\.@w{10,8000}\.@w{10,100}
"""


class TokenShape(NamedTuple):
    """A provider's token: its kind, its prefix, and the pattern of the rest."""

    kind: str
    prefix: str
    rest: str
    needs_dot: bool  # the run must be followed by a dot

    @property
    def pattern(self) -> re.Pattern[str]:
        return _compile_pattern(self.prefix, self.rest)


@cache
def _compile_pattern(prefix: str, rest: str) -> re.Pattern[str]:
    """Compile a shape on first use; most are never needed, and compiling all of them is slow."""
    for name, alphabet in _ALPHABETS.items():
        rest = rest.replace(name, alphabet)
    return re.compile(re.escape(prefix) + rest)


def _parse_shapes(table: str) -> tuple[TokenShape, ...]:
    rows = (line.split() for line in table.splitlines() if line and not line.startswith("#"))
    return tuple(
        TokenShape(kind, prefix, rest, _DOTTED_REST.match(rest) is not None)
        for kind, prefixes, rest in rows
        for prefix in prefixes.split(",")
    )


_DOTTED_REST = re.compile(r"@w\{\d+,\d+\}\\\.")
TOKEN_SHAPES = _parse_shapes(_SHAPE_TABLE)


_MIN_TOKEN_CHARS = 20  # providers issue no shorter tokens
_RUN_IMAGE = bytes.maketrans(
    bytes(range(256)),
    bytes(0x61 if (chr(c).isalnum() and c < 128) or chr(c) in "_-" else 0x20 for c in range(256)),
)
_MIN_RUN = b"a" * _MIN_TOKEN_CHARS
_MAX_SPLIT_CHARS = 600  # how far to follow a token that is split over lines

_RUN_CHARS = re.compile(r"[A-Za-z0-9_-]*\Z")
# The characters of tokens: where these end, a token ends or is split.
_TOKEN_CHARS = re.compile(r"[A-Za-z0-9_.%/+=,:-]*+")
_RUN_REST = re.compile(r"[A-Za-z0-9_-]*")
# Where a token is split: a line break, an escaped one, or concatenated strings.
_TOKEN_BREAK = re.compile(
    r"""["']?[ \t]{0,8}(?:\\|\+|\.)?[ \t]{0,8}(?:\r?\n|\\r\\n|\\n)"""
    r"""[ \t]{0,40}(?:\+|\.|>)?[ \t]{0,8}["']?"""
    r"""|["'][ ]{0,4}\+[ ]{0,4}["']"""
)

# Shapes whose prefix can be part of a run, by its first two letters. The other prefixes end in a
# mark that is not part of a run, so the run begins after them.
_SHAPES_BY_START: dict[str, list[TokenShape]] = {}
_MARKED_SHAPES: list[TokenShape] = []
for _shape in TOKEN_SHAPES:
    if _RUN_CHARS.match(_shape.prefix):
        _SHAPES_BY_START.setdefault(_shape.prefix[:2], []).append(_shape)
    else:
        _MARKED_SHAPES.append(_shape)
_MARKED_PREFIXES = tuple(_shape.prefix for _shape in _MARKED_SHAPES)
_MARK_CHARS = frozenset(_mark[-1] for _mark in _MARKED_PREFIXES)
_SECOND_LETTERS = {
    first: "".join(sorted(start[1] for start in _SHAPES_BY_START if start[0] == first))
    for first in sorted({start[0] for start in _SHAPES_BY_START})
}
# Where a token may begin inside a run.
_TOKEN_START = re.compile(
    "[_-](?=" + "|".join(f"{first}[{second}]" for first, second in _SECOND_LETTERS.items()) + ")"
)

# Tokens without a prefix, matched at the start of a run.
_PREFIXLESS_TOKEN = re.compile(
    r"""(?P<mailchimp>[0-9a-f]{32}-us\d{1,2}(?![\w-]))
      | (?P<discord>[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40}(?![\w-]))
      | (?P<azure>[A-Za-z0-9]{40,80}(?:AZDO|JQQJ9|ACDb|ACRD)[A-Za-z0-9]{4,30}={0,2}(?![\w-]))
    """,
    re.X,
)
_MIN_PREFIXLESS_CHARS = 36  # the shortest, except for the one with a dot after the run


def _compile_shape(
    literals: tuple[str, ...], pattern: str
) -> tuple[tuple[str, ...], re.Pattern[str]]:
    return literals, re.compile(pattern)


# Tokens recognized by the text before a run: `123456789:AA…`. Keyed by the character right before
# the run; the literals are a cheap first check.
_BY_PRECEDING_CHAR = {
    ":": _compile_shape(
        (":AA", "1/", "2/"),
        r"(?P<telegram>(?<!\d)\d{8,12}:AA[A-Za-z0-9_-]{30,40})"
        r"|(?P<asana>[12]/\d{12,20}(?:/\d{12,20})?:[0-9a-f]{32})",
    ),
    ".": _compile_shape(
        ("pat", ".atlasv1."),
        r"(?P<airtable>pat[A-Za-z0-9]{14}\.[0-9a-f]{64})"
        r"|(?P<terraform>[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{40,100})",
    ),
    "$": _compile_shape(
        ("access_token$",), r"(?P<paypal>access_token\$\w{4,12}\$[A-Za-z0-9]{16}\$[0-9a-f]{32})"
    ),
    "!": _compile_shape(("00D",), r"(?P<salesforce>00D[A-Za-z0-9]{12,15}![A-Za-z0-9._]{40,200})"),
    "~": _compile_shape(("Q~",), r"(?P<azure>[A-Za-z0-9_.~-]{3}\dQ~[A-Za-z0-9_.~-]{31,40})"),
}


def detect_tokens(scan: ScanInput) -> Iterator[RedactionSpan]:
    """Detect tokens of known providers."""
    image = scan.raw.translate(_RUN_IMAGE)
    start = image.find(_MIN_RUN)
    while start >= 0:
        end = image.find(b" ", start)
        end = len(image) if end < 0 else end
        if _is_identifier(scan.raw[start:end]):
            start = image.find(_MIN_RUN, end)
            continue
        for found in _detect_in_run(scan.text, start, end):
            yield found
            end = max(end, found.end)
        start = image.find(_MIN_RUN, end)


def _is_identifier(run: bytes) -> bool:
    """Return whether the run is words of one case without digits: `a_long_name_of_something`."""
    letters = run.replace(b"_", b"").replace(b"-", b"")
    return letters.isalpha() and (letters.islower() or (letters.isupper() and letters != run))


def _detect_in_run(text: str, start: int, end: int) -> Iterable[RedactionSpan]:
    before = text[start - 1 : start]
    if found := _detect_prefixless(text, start, end, before):
        return (found,)
    for at in _find_token_starts(text, start, end):
        for shape in _SHAPES_BY_START.get(text[at : at + 2], ()):
            if text.startswith(shape.prefix, at) and (found := _detect_token(text, at, end, shape)):
                return (found,)
    if before in _MARK_CHARS and text.endswith(_MARKED_PREFIXES, max(0, start - 24), start):
        return list(_detect_marked(text, start, end))
    return NO_SPANS


def _detect_marked(text: str, start: int, end: int) -> Iterator[RedactionSpan]:
    for shape in _MARKED_SHAPES:
        at = start - len(shape.prefix)
        if text.endswith(shape.prefix, max(0, start - 24), start) and can_start_token(text, at):
            found = _detect_token(text, at, end, shape)
            if found is not None:
                yield found


def _find_token_starts(text: str, start: int, end: int) -> list[int]:
    """Return where in a run a token may begin: at its start, after an escape, `_` or `-`."""
    found = [mark.end() for mark in _TOKEN_START.finditer(text, start, end)]
    if text[start] not in "_-":
        found.insert(0, start)
    if start and text[start - 1] in "\\%[u":
        found += [at for at in range(start + 1, min(start + 6, end)) if can_start_token(text, at)]
    return found


def _detect_prefixless(text: str, start: int, end: int, before: str) -> RedactionSpan | None:
    is_long_enough = end - start >= _MIN_PREFIXLESS_CHARS or text.startswith(".", end)
    if is_long_enough and (found := _PREFIXLESS_TOKEN.match(text, start)) and found.lastgroup:
        return make_secret_span(start, found.end(), found.lastgroup)
    if before not in _BY_PRECEDING_CHAR:
        return None
    literals, pattern = _BY_PRECEDING_CHAR[before]
    begin, stop = max(0, start - 64), start + 320
    if all(text.find(literal, begin, stop) < 0 for literal in literals):
        return None
    found = pattern.search(text, begin, stop)
    return (
        make_secret_span(found.start(), found.end(), found.lastgroup or "token") if found else None
    )


def _detect_token(text: str, at: int, end: int, shape: TokenShape) -> RedactionSpan | None:
    """Return the token of this shape at `at`, in a run that ends at `end` or is split."""
    lacks_dot = shape.needs_dot and not text.startswith(
        ".", end
    )  # the shape needs a dot after the run
    if not lacks_dot and (found := shape.pattern.match(text, at, at + 9000)):
        rest = text[at + len(shape.prefix) : found.end()]
        stop = _extend_token(text, max(end, found.end()))
    elif end - at > _MAX_SPLIT_CHARS or not _is_split(text, at):
        return None
    else:
        window = text[at : at + _MAX_SPLIT_CHARS]
        joined, ends = _join_pieces(window)
        if len(ends) < 2 or not (found := shape.pattern.match(joined)):
            return None
        rest = joined[len(shape.prefix) : found.end()]
        stop = at + _map_position(found.end(), ends)
    if is_placeholder(rest) or not _is_random_enough(shape.prefix, rest):
        return None
    return make_secret_span(at, stop, shape.kind)


def _is_split(text: str, at: int) -> bool:
    """Return whether the token's characters end at a break."""
    found = _TOKEN_CHARS.match(text, at, at + _MAX_SPLIT_CHARS)
    end = found.end() if found else at
    return _TOKEN_BREAK.match(text, end) is not None or (
        text[end - 1] in ".+" and _TOKEN_BREAK.match(text, end - 1) is not None
    )


_WEAK_PREFIXES = frozenset(("s.", "00", "sk-", "pa-", "st."))  # also common in ordinary text


def _is_random_enough(prefix: str, rest: str) -> bool:
    """Return whether the prefix is long enough, or the rest random enough, for a token."""
    if len(prefix) >= 8:
        return any(letter.isdigit() for letter in rest) or len(set(rest)) > 8
    if prefix not in _WEAK_PREFIXES and rest[:20].isalnum() and not rest[:20].isalpha():
        return True
    if is_digest(rest) or (len(prefix) >= 5 and not rest.islower() and len(set(rest)) > 8):
        return True
    if len(prefix) > 1 and rest.isupper() and rest.isalnum():
        return compute_entropy(rest) >= 2.8 and (len(prefix) > 3 or not rest.isalpha())
    return is_random(rest) or is_random(rest[:40])


def _extend_token(text: str, end: int) -> int:
    """Return the end of a token that continues on the next lines, each of them random."""
    for _ in range(64):
        gap = _TOKEN_BREAK.match(text, end)
        if gap is None or gap.end() == end:
            return end
        following = _RUN_REST.match(text, gap.end())
        if following is None:
            return end
        stop = following.end()
        closes = text[stop : stop + 1] in ("", "\n", "\r", '"', "'", "\\")
        if not closes or not is_random(following.group(), 10):
            return end
        end = stop
    return end


def _join_pieces(window: str) -> tuple[str, list[tuple[int, int]]]:
    """Return the window without its breaks, and the end of each piece in both texts."""
    pieces: list[str] = []
    ends: list[tuple[int, int]] = []
    size = at = 0
    for gap in _TOKEN_BREAK.finditer(window):
        pieces.append(window[at : gap.start()])
        size += gap.start() - at
        ends.append((size, gap.start()))
        at = gap.end()
    pieces.append(window[at:])
    ends.append((size + len(window) - at, len(window)))
    return "".join(pieces), ends


def _map_position(joined: int, ends: list[tuple[int, int]]) -> int:
    """Map a position in the joined window to the original window."""
    for size, end in ends:
        if joined <= size:
            return end - (size - joined)
    return ends[-1][1]
