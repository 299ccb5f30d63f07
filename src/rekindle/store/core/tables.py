"""The tables of the store, for both engines.

A column is its name, its kind and its options, the fields of `TableColumn`. To add one, append it to
the columns of its table with `since` one higher than the latest version; if values have it as a
field, add the field to the value's class too. Old databases get it by a migration built from here.
The search indexes differ by engine and stand in `migrations/*.sql`.
"""

from __future__ import annotations

from rekindle.projects import FOLDER_PREFIX
from rekindle.types import Tokens

from .columns import INTEGER, Index, Table, TableColumn
from .tenant_tables import API_KEYS, AUDIT_LOG, TENANT_MEMBERS, TENANT_USAGE, TENANTS

USAGE_COLUMNS = (*(f"tokens_{name}" for name in Tokens._fields), "cost_nano")
OPENING_CHARS = 28  # of a preview: sessions that share them began with the same words
_OF_SESSION = "REFERENCES sessions (num) ON DELETE CASCADE"
_SESSION = TableColumn("session", INTEGER, constraint=_OF_SESSION)
_SESSION_KEY = _SESSION._replace(primary=True)


def build_project_key(table: str = "") -> str:
    """Build the SQL of a session's project: its folder as long as no repository is known."""
    return f"coalesce({table}project, {table}repository, '{FOLDER_PREFIX}' || {table}cwd)"


_PROJECT_KEY = build_project_key()

SESSIONS = Table(
    "sessions",
    "num serial",
    "id key unique is_name",
    "source key is_name",
    "owner key is_name is_blank imported",
    "user_name text null field=user updatable imported",
    "model text null updatable imported",
    "model_config json null updatable imported",
    "title key null derived",
    # The title without its number, case-folded: the same for "Plan" and "plan #2".
    "title_base key null",
    "title_number integer null",
    # An id: the parent may be outside this store.
    "parent key null is_name imported",
    "forked_at integer null",
    "started real",
    "last_active real",
    "ended real null",
    "end_reason text null",
    "next_position integer",
    "message_count integer derived",
    "tool_call_count integer derived",
    *(TableColumn(name, INTEGER, default="0") for name in USAGE_COLUMNS),
    "template text null updatable",
    "arm text null updatable",
    "cwd text null updatable imported",
    "git_branch text null updatable imported",
    "preview text null derived",
    "archived real null",
    "pruned real null",
    "changes integer default=0",  # incremented by every UPDATE of the row
    "is_escaped small default=0",  # 1 if a text in this row must be unescaped
    "template_revision integer null since=6",
    "prelude text null since=6",  # a hash
    # The key of the repository's remote as the transcript names it, and of the project it belongs to.
    "repository text null updatable imported since=11",
    "project key null since=11",
    "last_request text null derived since=13",
    # The kind of agent that the parent started this session as: NULL in forks and compressions.
    "sub_agent text null imported since=13",
    "system_prompt text null since=16",  # a hash, as of a prelude
    # One for lists of all sources and of one: a second would have to be written with every message.
    Index("sessions_recent", "last_active, source WHERE pruned IS NULL"),
    Index("sessions_owner", "owner, last_active WHERE owner <> ''"),
    Index("sessions_title", "owner, title WHERE title IS NOT NULL AND pruned IS NULL", unique=True),
    Index("sessions_lineage", "title_base, title_number WHERE title IS NOT NULL"),
    Index("sessions_parent", "parent WHERE parent IS NOT NULL"),
    Index("sessions_pruned", "pruned WHERE pruned IS NOT NULL"),
    Index("sessions_template", "template, last_active WHERE template IS NOT NULL"),
    Index("sessions_prelude", "prelude WHERE prelude IS NOT NULL"),
    Index("sessions_system_prompt", "system_prompt WHERE system_prompt IS NOT NULL", since=16),
    Index("sessions_project", "project WHERE project IS NOT NULL", since=11),
    Index("sessions_folder", "cwd WHERE cwd IS NOT NULL", since=11),
    # Lists of a project. Most chats have no folder: their messages do not write to it.
    Index(
        "sessions_scope",
        f"{_PROJECT_KEY}, last_active, source WHERE pruned IS NULL AND {_PROJECT_KEY} IS NOT NULL",
        since=13,
    ),
    # Finds the sessions that begin with the same words, see `titles`.
    Index(
        "sessions_opening",
        f"substr(preview, 1, {OPENING_CHARS}), num WHERE preview IS NOT NULL AND pruned IS NULL",
        since=13,
    ),
)
# `position` orders the messages of a session. Ids follow the order of arrival: new rows go to the
# end of the file, and small ids keep the search index small.
MESSAGES = Table(
    "messages",
    "id rowid",
    TableColumn("session", INTEGER, constraint="REFERENCES sessions (num)"),
    "position integer",
    "role text",
    "time real",
    "rewind integer null",  # the rewind that removed it from the conversation
    "origin integer null",  # the message that a fork copied it from
    "calls small default=0",
    "tool_call_id text null",  # id of the call that this message is the result of
    "platform_id key null field=platform_message_id",
    # Names of the tools it calls or has results of, each between spaces.
    "tools text null",
    "body text null",  # everything except plain text content, as JSON
    "content text null",
    Index("messages_place", "session, position", unique=True),
    # Not unique: a rewrite may repeat messages. `append` checks for duplicates in its transaction.
    Index("messages_platform", "session, platform_id WHERE platform_id IS NOT NULL"),
)
REWINDS = Table(
    "rewinds",
    "num serial",
    _SESSION,
    "kind text, since integer, messages integer, time real, restored real null",
    Index("rewinds_session", "session, num"),
)
IMPORTS = Table("imports", "path key primary, stamp text, imported_at real", has_rowid=False)
# Usage of each model in a session. Usage that is not listed here (imported with the session, or
# counted by an older version) belongs to the model of the session.
USAGE = Table(
    "usage",
    _SESSION,
    "model key",
    *(TableColumn(name, INTEGER) for name in USAGE_COLUMNS),
    key="session, model",
    has_rowid=False,
)
# When the models of a session used their tokens, for sums over days. A session without entries was
# stored by an older version, or its format has no times: it counts on the day of its start.
USAGE_ENTRIES = Table(
    "usage_entries",
    _SESSION,
    "quarter integer, model key, above integer",
    *(TableColumn(name, INTEGER) for name in USAGE_COLUMNS),
    "cache_write_1h integer",
    Index("usage_entries_quarter", "quarter", since=12),
    key="session, quarter, model, above",
    has_rowid=False,
    since=12,
)
# A route maps the key of a conversation to its current session.
ROUTES = Table(
    "routes",
    "key key primary",
    "session text",  # an id: the session row is created with the first message
    "previous text null",  # the previous session, for /back
    "created real, updated real, origin text, display_name text, platform text",
    "chat_type text",
    "reset text null",  # reason of an automatic reset, until the user is notified
    "tokens text, changes integer default=0",
    "usage text default='{}' since=5",  # per model, over all sessions
    "listed_sessions text null since=5",  # the sessions listed last, for selection by number
    "owner text null since=15",  # of its sessions, if it is not the one that its key stands for
    Index("routes_updated", "updated"),
)
# Received messages in order of arrival. Answered ones are kept for a while, so that a message which
# a platform delivers twice is not answered twice.
INBOX = Table(
    "inbox",
    "num serial, key key, platform_id key null, source text, body text field=message",
    "state text",  # waiting, running, done, failed, undeliverable
    "session text null",  # where the message was stored when its turn began
    "position integer null, reason text null, time real",
    "attempts integer default=0 since=5",  # how often its turn was started
    Index("inbox_platform", "key, platform_id WHERE platform_id IS NOT NULL", unique=True),
    Index("inbox_open", "key, num WHERE state IN ('waiting', 'running')"),
    Index("inbox_time", "time WHERE state IN ('done', 'failed')"),
    Index("inbox_undeliverable", "num WHERE state = 'undeliverable'"),
)
OUTBOX = Table(
    "outbox",
    "num serial, key key",
    "inbox integer null field=reply_to",  # number of the message it answers
    "target text, text text",
    "state text",  # waiting, sent, failed
    "attempts integer default=0, next_try real",
    "platform_id key null field=platform_message_id, reason text null, time real",
    "file text null since=17",  # the path of a file to send, with the text as its caption
    Index("outbox_open", "next_try, num WHERE state = 'waiting'"),
    Index("outbox_key", "key, num"),
    Index("outbox_time", "time WHERE state IN ('sent', 'failed')"),
)
# Which gateway works on a conversation: one at a time, and only while it renews its lease.
LEASES = Table("leases", "key key primary, instance text, expires real", has_rowid=False)
# Which program writes to a session: one at a time, and only while it renews its lease.
SESSION_LEASES = Table(
    "session_leases",
    "session key primary",
    "name text",  # of the holder, also after a restart
    "fence text",  # new for every holder
    "program text, host text, pid integer",
    "process text",  # tells on the same machine whether the holder is still running
    "since real, expires real",
    has_rowid=False,
    since=17,
)
# The chat of each platform for messages that belong to no conversation.
HOME_CHATS = Table("home_chats", "platform key primary, source text", has_rowid=False)
# Who may talk to the gateway. A row without a role is a pairing request that waits for the operator.
PEOPLE = Table(
    "people",
    "platform key, user_id key",
    "role text null",  # owner, user, guest, denied
    "name text",
    "person key",  # the same for all identities of one person
    "code text null",  # SHA-256 of the pairing code
    "expires real null",  # of the code
    "asked real null, requests integer default=0",  # when a code was sent last, and how many in all
    "changed real",
    Index("people_person", "person", since=14),
    Index("people_code", "code WHERE code IS NOT NULL", since=14),
    key="platform, user_id",
    has_rowid=False,
    since=14,
)
# Identities of one person on several platforms; without a person, only a code was made.
LINKS = Table(
    "links",
    "platform key, user_id key",
    "person key null",  # the identity that made the code, as PLATFORM:USER
    "owner key null",  # of its sessions
    "chat text",  # a source: where it is told about the link
    "code text null",  # SHA-256
    "expires real null",
    "changed real",
    Index("links_person", "person WHERE person IS NOT NULL", since=16),
    Index("links_code", "code WHERE code IS NOT NULL", since=16),
    key="platform, user_id",
    has_rowid=False,
    since=16,
)
# What happened at the gate: requests, approvals, denials, refused messages.
ACCESS_LOG = Table(
    "access_log",
    "num serial, time real, platform text, user_id text, name text, event text, detail text",
    Index("access_log_time", "time", since=14),
    since=14,
)
# Questions to an owner about a tool call that needs approval.
APPROVALS = Table(
    "approvals",
    "id key primary",
    "inbox integer",  # number of the message whose turn waits for the answer
    "key key",  # of the conversation
    "digest text",  # of the call, to recognise it when its turn resumes after a crash
    "tool text, summary text",
    "state text",  # pending, answered, used, expired
    "answer text null",  # no, once, session
    "answered_by text null",  # PLATFORM:USER
    "asked real, expires real",
    Index("approvals_inbox", "inbox", since=17),
    Index("approvals_pending", "expires WHERE state = 'pending'", since=17),
    Index("approvals_asked", "asked", since=17),
    has_rowid=False,
    since=17,
)
# The last errors of gateways, for their operator.
GATEWAY_ERRORS = Table(
    "gateway_errors",
    "num serial, time real, key key, kind text, cause text, times integer",
    since=17,
)
# What a person used on a day (UTC), for daily limits.
PERSON_USAGE = Table(
    "person_usage",
    "person key, day text, turns integer, tokens integer, cost_nano integer",
    key="person, day",
    has_rowid=False,
    since=14,
)
# Scheduled jobs. Each run is a message in the inbox, put there in one transaction with `next_run`.
JOBS = Table(
    "jobs",
    "num serial",
    "id key unique",
    "name text, owner text",
    "maker text",  # the source of who made it; its rights are those of this person
    "kind text",  # prompt, command
    "text text",
    "rule text",  # as JSON
    "platform text, target text, deliver text",  # where results go: as JSON, and as it was written
    "session text",  # new: one per run; same: one for all runs
    "is_silent small, state text",  # active, paused, done
    "next_run real null, last_run real null",
    "requested real null",  # when somebody asked for a run beside those of the rule
    "reason text null",  # why it was paused, if nobody did it
    "created real, runs integer default=0",
    Index("jobs_due", "next_run WHERE state = 'active'", since=15),
    Index("jobs_requested", "requested WHERE requested IS NOT NULL", since=15),
    Index("jobs_owner", "owner", since=15),
    since=15,
)
JOB_RUNS = Table(
    "job_runs",
    "num serial",
    TableColumn("job", INTEGER, constraint="REFERENCES jobs (num) ON DELETE CASCADE"),
    "due real, inbox integer null",
    "state text",  # running, done, failed
    "session text null, output text, reason text null, started real, ended real null",
    Index("job_runs_due", "job, due", unique=True, since=15),
    Index("job_runs_inbox", "inbox WHERE inbox IS NOT NULL", since=15),
    Index("job_runs_ended", "ended WHERE ended IS NOT NULL", since=15),
    since=15,
)
# What the agent remembers for an owner. A row is a fact, or a proposal, for as long as it held: a change
# ends one row and begins another, so that what a session was told at its start can be told again.
MEMORY_FACTS = Table(
    "memory_facts",
    "num serial, owner key",
    "number integer",  # by which people name it; a fact that replaces another takes over its number
    "text text",
    "state text",  # active, proposed
    "since real, until real null",
    "replaces integer null",  # number of the fact that a proposal would replace
    "session text null",
    Index("memory_facts_owner", "owner, since", since=16),
    since=16,
)
# Every change of an owner's facts, with the texts before and after, for history and undo.
MEMORY_CHANGES = Table(
    "memory_changes",
    "num serial, owner key, time real",
    "action text",  # add, replace, remove, propose, accept, reject, undo
    "actor text",  # agent, person
    "number integer, before_text text null, after_text text null, session text null",
    "undone small default=0",
    Index("memory_changes_owner", "owner, num", since=16),
    since=16,
)
# The last number given to a fact of each owner. Updating the row locks the owner's facts.
MEMORY_OWNERS = Table(
    "memory_owners", "owner key primary, last_number integer", has_rowid=False, since=16
)
# Sessions in which the agent had its one chance to save facts before the session expires.
MEMORY_FLUSHES = Table(
    "memory_flushes", "session key primary, key key, time real", has_rowid=False, since=16
)
# Verdicts on tool calls. Derived data: may be deleted at any time.
CALLS = Table(
    "calls",
    _SESSION,
    "position integer",  # position of the message that makes the call
    "number integer, id text, tool text, tool_kind text, digest integer, outcome text",
    "failed integer null, error_kind text null, fault text null, rule text, confidence real",
    "duration real null, result_position integer null",
    key="session, position, number",
    has_rowid=False,
)
# How far a session was judged, by which rules, and its state at that time.
JUDGED_SESSIONS = Table(
    "judged_sessions",
    _SESSION_KEY,
    "rules text, changes integer",
    # Rewinds made and restored: if this changes, the whole session is judged again.
    "rewinds integer",
    "since integer",  # first position to judge again when there are new messages
    "compressions text",
)
# What became of whole sessions. Derived data.
SESSION_OUTCOMES = Table(
    "session_outcomes",
    _SESSION_KEY,
    "version text",
    "changes integer",
    "verdict text",  # succeeded, failed, unknown
    "rule text, confidence real",
    "position integer null",  # of the message that decided
    Index("session_outcomes_verdict", "verdict, session", since=12),
    since=12,
)
# The index of the template files. It is always rebuilt from the files.
TEMPLATES = Table(
    "templates",
    "id key primary",
    "stamp text",  # stamp of the file it was read from
    "state text",
    "projects text",  # of its notes, as JSON
    "is_shared integer, owner text null",
    "sources text",  # ids of sessions, as JSON
    has_rowid=False,
    since=12,
)
# The exact bytes of the messages that warm sessions were started with.
PRELUDES = Table("preludes", "hash key primary, body blob, time real", has_rowid=False)
EXPERIMENTS = Table(
    "experiments",
    "num serial",
    "name key unique",
    "state text",
    "arms text",  # names and shares, as JSON
    "seed text",
    "settings text",  # as JSON
    "started real, ended real null",
)
# The arm each session was assigned to before its first message.
ASSIGNMENTS = Table(
    "assignments",
    TableColumn("experiment", INTEGER, constraint="REFERENCES experiments (num) ON DELETE CASCADE"),
    "root key",  # the first session of a lineage: its children share the arm
    "owner text, arm text, time real",
    key="experiment, root",
    has_rowid=False,
)
# What learning keeps of a session: no text that is not known to be harmless. Derived data.
OBSERVATIONS = Table(
    "observations",
    _SESSION_KEY,
    "version text",
    "changes integer",
    "data blob",
    since=11,
)
# The project of each folder, with how often its sessions named each remote, as JSON.
FOLDERS = Table(
    "folders",
    "folder key primary",
    "project key",
    "remotes text",
    has_rowid=False,
    since=11,
)
# What is recalled in a project, built from the observations of its sessions. Derived data.
PLAYBOOKS = Table(
    "playbooks",
    "project key primary",
    "version text",
    "data blob",
    has_rowid=False,
    since=11,
)
# What people decided about notes, and the notes they wrote.
NOTE_DECISIONS = Table(
    "note_decisions",
    "project key, note key, state text, text text null, time real",  # pinned, retired, added
    "origin text null since=22",  # of a note that a model proposed, as JSON
    key="project, note",
    has_rowid=False,
    since=11,
)

# Checkpoints of graph frameworks. A checkpoint names the versions of its channels' values.
GRAPH_CHECKPOINTS = Table(
    "graph_checkpoints",
    "thread key, namespace key, id key",
    "parent key null, run key null",
    "kind text, data blob",  # as the framework's serializer wrote it
    "versions text, metadata text",  # as JSON
    Index("graph_checkpoints_run", "run WHERE run IS NOT NULL", since=18),
    key="thread, namespace, id",
    since=18,
)
GRAPH_VALUES = Table(
    "graph_values",
    "thread key, namespace key, channel key, version key, kind text, data blob",
    key="thread, namespace, channel, version",
    since=18,
)
GRAPH_WRITES = Table(
    "graph_writes",
    "thread key, namespace key, checkpoint key, task key, idx integer",
    "path text, channel text, kind text, data blob",
    key="thread, namespace, checkpoint, task, idx",
    since=18,
)

# Tables of earlier versions, by the version that dropped or replaced them; all held derived data.
DROPPED_TABLES: dict[int, tuple[str, ...]] = {
    12: (
        "patterns", "templates", "pattern_words", "candidates", "call_type_counts", "mining_calls",
        "mining_results", "candidate_counts", "call_type_totals", "counts_state",
    )
}  # fmt: skip

# What migrations derive for old rows, by version.
DERIVED_VALUES: dict[int, tuple[str, ...]] = {
    13: (
        """UPDATE sessions SET changes = changes + 1, sub_agent = 'agent' WHERE parent IS NOT NULL
        AND (source = 'opencode' OR id LIKE 'agent-%@%' OR id LIKE 'sidechain-%@%')""",
    )
}

# The last version that changed what only one engine or the tables of tenants have, see `migrations`
# and `tenants/shared_tables`.
ENGINE_VERSION = 23

# The directory of tenants, which a tenant's own tables do not have.
DIRECTORY_TABLES = (TENANTS, TENANT_MEMBERS, API_KEYS, TENANT_USAGE, AUDIT_LOG)
# In the order above, which is that of their references.
TABLES = tuple(value for value in [*vars().values()] if isinstance(value, Table))
