"""Common words of English and of programming, which reveal nothing by themselves.

A user's sentence may be repeated only if each of its words is one of these or is used by independent
sessions: whatever else it contains may be a name, a password or another value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rekindle.judging.rules.text_patterns import split_words

_ENDINGS = re.compile(r"(?:'s|s'|ies|ings?|ers?|ed|es|ly|s|e|y)$")
_DOUBLE = re.compile(r"([bdfglmnprt])\1$")


def get_stem(word: str) -> str:
    """Return what the forms of a word have in common: `use` for `using`, `commit` for `commits`."""
    plain = word.casefold()
    while len(plain) > 3 and (shorter := _ENDINGS.sub("", plain)) != plain and len(shorter) > 1:
        plain = _DOUBLE.sub(r"\1", shorter)
    return plain


_WORDS = split_words(
    """
    a able about above accept access accidentally across act action actual add address after again
    against agent ago agree ahead algorithm alias align all allow almost alone along already also
    alternative although always am among amount an and annotation another answer any anymore anyone
    anything anyway anywhere apart api app appear append application apply approach approval approve
    architecture are area aren't argument around array arrow as ascii ask assert assertion assign assume
    async at atomic attach attempt attribute author auto automatic available avoid await away back
    backend background backtick backup backward bad bar base baseline basic batch be because become been
    before began begin behave behavior behaviour behind being believe below bench benchmark beside best
    better between beyond big binary bit black blank block blog body bool boolean both bottom boundary
    box brace bracket branch break breakpoint brief bring broad broken browser budget buffer bug build
    bullet bump bundle but button by byte cache call callback caller came camel camelcase can can't
    cannot capital care careful case cast catch category cause cell central certain chain chance change
    changelog channel chapter char character chat cheap check checkbox checklist checkout checkpoint
    child choice choose chunk ci citation class clean cleanup clear cli click client clone close cloud
    cluster code codebase coding collection color colour column combine come comes coming comma command
    comment commit common commonly compact compare comparison compatibility compatible compile complete
    completely complex component compute concern concise concrete condition config configuration confirm
    conflict confuse connect connection consider consistency consistent console constant constraint
    constructor contain container content context continue contract contrast contribute contributor
    control convention conventional conversation convert coordinate copilot copy core correct cost could
    couldn't count counter couple course cover coverage crash create critical cross css csv current
    cursor custom cut cycle daemon dark dash dashboard data database date datetime day dead deal debug
    decide decimal decision declare deep default defer define definition delay delete deliver demo
    depend dependabot dependency deploy deployment deprecate depth describe description design desktop
    destination destroy detail detect dev develop developer development diagram dialog did didn't diff
    differ difference different difficult direct direction directory disable discard discuss disk
    display dist distinct do doc docker docs docstring document documentation does doesn't dom domain
    don't done dot double doubt down download draft drag draw driver drop dry due dummy dump duplicate
    duplication duration during each earlier early ease easy edge edit editor effect effort either
    element else email emit emoji empty enable encode end endpoint enforce engine english enough ensure
    enter entire entirely entry enum env environment equal error escape especially etc eval even event
    ever every everybody everyone everything everywhere exact exactly example exceed except exception
    exclude executable execute exist exit expand expect expectation expected experiment explain explicit
    explicitly export expose expression extend extension extra extract fact factor factory fail failure
    fall fallback false familiar far fast favor feature feedback feel fetch few field figure file
    filename filesystem fill filter final finally find fine finish first fit fix fixture flag flaky flat
    float flow focus fold folder follow font footer for force foreign forget fork form format formatter
    forward found four framework free freeze frequent fresh friend from front frontend full function
    functional further future gap gate gave gemini general generate generic get git github gitignore
    gitlab give given global go goal gone good got grammar graph great green grep grid group guard guess
    guide guideline had half hand handle handler happen hard hardcode has hash have haven't he head
    header heading headless heavy height hello help helper here hidden hide hierarchy high highlight
    hint his history hit hold home hook host hour how however html http https human i i'd i'll i'm i've
    icon id ide idea ideally identical identifier identify idle if ignore image immediately immutable
    implement implementation implicit import important impossible improve in include incorrect increase
    indent indentation independent index indicate individual infer info inform information inherit init
    initial initialize inject inline inner input insert inside inspect install instance instead
    instruction int integer integration intend intent interactive interface internal into introduce
    invalid invoke involve is isn't isolate issue it item iterate its itself java javascript job join
    json just keep kept key keyboard keyword kind knew know known label lambda land language large last
    late later latest layer layout lazy lead leak learn least leave left legacy length less let let's
    letter level library licence license life light like limit line linear link lint linter linting
    linux list listen literal literally little live ll load local locale localhost location lock log
    logger logging logic long longer look lookup loop loose lose lot low lower lowercase mac machine
    macos macro made main maintain maintainer major make man manage manifest manual manually many map
    margin mark markdown master match matter max maximum may maybe me mean meaning meaningful measure
    mechanism meet member memory mention menu merge message metadata method metric middle middleware
    might migrate migration min mind minimal minimize minimum minor minute mirror mise miss mistake mix
    mobile mock mode model modern modify module moment monorepo month more most mostly move much multi
    multiple must mustn't mutable mutate my name namespace native navigate near necessarily necessary
    need needn't negative neither nest network never new newline next nice nil no nobody node noise non
    none nor normal not note notebook nothing notice notification notify now npm null number object
    obsolete obvious occur of off official offline often ok okay old omit on once one ones online only
    onto open operation operator opinion opt option optional or order origin original other otherwise
    our out output outside over overall overflow overlap override overwrite own package pad page
    paginate pagination pair panel panic paragraph parallel param parameter parent parenthesis parse
    parser part particular pass past paste patch path pattern pause pay people per percent perfect
    perform performance perhaps permanent permission person phase phrase pick picture piece pin pipe
    pipeline place placeholder plain plan platform play please plugin plus point pointer policy poll
    pool pop popup port position possible post postgres postpone potential power practice pre prefer
    preference prefix premature prepare present preserve press pretty prevent preview previous primary
    principle print prior priority private probably problem proceed process produce product production
    profile program progress project prompt proper properly property propose protect protocol prove
    provide provider proxy public publish pull pure purpose push put python query question queue quick
    quickly quiet quite quote race raise random range rare rate rather raw re react read readability
    readable reader readme ready real realistic really reason rebase rebuild recent recommend record
    recover recursive red redirect redo reduce redundant refactor refer reference reflect regex region
    regress regression regular reject relate relative release relevant reliable rely remain remember
    remind remote remove rename render reopen repeat replace reply repo report repository represent
    request require requirement rerun reset resolve resource respect respond response responsibility
    rest restart restore restrict result resume retry return reuse reveal reverse revert review reviewer
    revise rewrite right robust role roll rollback root rough round route routine row ruff rule run
    runner runtime rust safe safety said same sample sanitize save saw say scale scan scenario schedule
    schema scope screen screenshot script scroll search second section security see seem seen select
    self send sense sentence separate sequence serial serialize series server service session set
    setting settings setup several severity shadow shall shallow shape share she shell shift ship short
    shortcut shorter should shouldn't show shut side sign signal signature significant silent silently
    similar simple simpler simplest simplify simply since single site size skip sleep slice slow small
    smart snake snapshot so software solve some somebody someone something sometimes soon sort sound
    source space spawn speak spec special specific specify speed spell spend split spot sql squash
    stable stack stage stale stand standalone standard start starting stash state statement static
    status stay step still stop storage store story straight strange strategy stream strict string strip
    strong struct structure stub stuff style sub subject submit subprocess subset substring success such
    sudden suffix suggest suggestion suite sum summarize summary super support suppose sure surface
    surprise swap switch symbol symlink sync syntax system tab table tag take taken talk target task
    team tell temp template temporary ten tend term terminal test testing text than thank thanks that
    that's the their them then there these they thing think third this those though thread three
    threshold through throughout throw thus ticket tidy tie time timeout timer timestamp tip title to
    today todo together toggle token told tomorrow too took tool tooling top topic total touch toward
    trace track trail trailer trailing transaction transform transition translate transparent tree
    trigger trim trivial true trust truth try turn twice two type typed typescript typo ui unchanged
    undefined under underscore understand undo unexpected unicode unify unique unit unless unlike
    unnecessary unrelated unreleased unsafe until unused up update upgrade upon upper uppercase upstream
    us usage use useful user usual usually utf util utility valid validate validation value variable
    variant various vendor verbose verbosity verify version very via view visible visual visually vs
    wait walk want warn warning was wasn't watch way we we'll we're we've web website week weird well
    went were weren't what whatever when whenever where wherever whether which while white whitespace
    who whole whose why wide widget width will window windows with within without won't wonder word work
    worker workflow workspace worktree world worry worth would wouldn't wrap wrapper write written wrong
    x yaml year yes yesterday yet you you'd you'll you're your yours yourself zero zone
    """
)
# Units, and what people do and have outside of programming.
_EVERYDAY_WORDS = split_words(
    """
    book bought box buy carry celsius cent charge cheap cm collect crate customer deliver delivery
    dollar dozen euro feet fill fine foot fridge goods gram grow held hold hour hours inch invoice
    joule kg kilo kilogram kilometer kilometre km lie litre liter load mass meter metre mg mile
    milligram millimetre ml mm ordered ounce own paid pair pallet parcel pay payment percent phone
    piece pint pound price quantity register room sale second sell sent shelf ship shipment shop sold
    stock stone store storey tall ton tonne total volt warehouse watt weigh weight wide yard
    """
)
# Forms that no rule makes, and short words.
_FORMS = split_words(
    """
    accidental bare buggy center centre def doing drive engineer falsy flaky goes going immediate it's
    iter loss machinery marker mod party pr pr's prop quit recovery ref rev serve sit stat str succeed
    supersede theme tone truthy underlying unity used using worse youre
    """
)
_COMMON_WORDS = _WORDS | _EVERYDAY_WORDS | _FORMS
# Surnames that are made of a word as the name of a tool is.
_SURNAMES = split_words(
    """
    anders archer banker bender booker carter cutter driver farmer fielder fisher foster fuller hooker
    hunter keeper marker miller parker porter poster pusher ringer rider roper sander setter singer
    skipper slater stocker tanner teller turner tyler usher walker warner weaver wilder winder
    """
)
_DOUBLED = "2"  # the last letter is written twice: `committed`
# What an inflected word ends with, and with what its base does.
_INFLECTIONS = (
    ("'s", ("",)),
    ("s'", ("s", "")),
    ("ies", ("y", "ie")),
    ("ied", ("y",)),
    ("ily", ("y",)),
    ("es", ("", "e")),
    ("s", ("",)),
    ("ings", ("", "e", _DOUBLED)),
    ("ing", ("", "e", _DOUBLED)),
    ("ed", ("", "e", _DOUBLED)),
    ("ers", ("", "e", _DOUBLED)),
    ("er", ("", "e", _DOUBLED)),
    ("ally", ("al", "")),
    ("bly", ("ble",)),
    ("ly", ("", "e")),
)
MIN_BASE_CHARS = 3


def is_common_word(word: str) -> bool:
    """Return whether a word is common English or a term of programming, or a regular form of one."""
    plain = word.casefold()
    if plain in _COMMON_WORDS:
        return True
    return plain not in _SURNAMES and any(base in _COMMON_WORDS for base in _iter_bases(plain))


def is_listed_word(word: str) -> bool:
    """Return whether a word is common as it stands."""
    return word.casefold() in _COMMON_WORDS


def _iter_bases(word: str) -> Iterator[str]:
    """Yield what a word may be a form of: `use` for `using`, `commit` for `committed`."""
    for ending, replacements in _INFLECTIONS:
        start = word.removesuffix(ending)
        if start == word or len(start) < MIN_BASE_CHARS:
            continue
        for replacement in replacements:
            if replacement != _DOUBLED:
                yield start + replacement
            elif start[-1] == start[-2]:
                yield start[:-1]
