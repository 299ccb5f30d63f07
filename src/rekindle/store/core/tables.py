"""The tables of the store: one line per column, for both engines.

To add a column, append its line to the columns of its table with `since` one higher than the latest
version; if values have it as a field, add the field to the value's class too. Databases get it by a
migration built from the line. The search indexes differ by engine and stand in `migrations/*.sql`.
"""

from __future__ import annotations

from rekindle.types import Tokens

from .columns import (
    BLOB,
    INTEGER,
    JSON,
    KEY,
    REAL,
    ROWID,
    SERIAL,
    SMALL,
    TEXT,
    Index,
    Table,
    TableColumn,
)

USAGE_COLUMNS = (*(f"tokens_{name}" for name in Tokens._fields), "cost_nano")
_OF_SESSION = "REFERENCES sessions (num) ON DELETE CASCADE"

SESSIONS = Table(
    "sessions",
    TableColumn("num", SERIAL),
    TableColumn("id", KEY, constraint="UNIQUE", is_name=True),
    TableColumn("source", KEY, is_name=True),
    TableColumn("owner", KEY, is_name=True, is_blank=True, imported=True),
    TableColumn("user_name", TEXT, null=True, field="user", updatable=True, imported=True),
    TableColumn("model", TEXT, null=True, updatable=True, imported=True),
    TableColumn("model_config", JSON, null=True, updatable=True, imported=True),
    TableColumn("title", KEY, null=True, derived=True),
    # The title without its number, case-folded: the same for "Plan" and "plan #2".
    TableColumn("title_base", KEY, null=True),
    TableColumn("title_number", INTEGER, null=True),
    # An id: the parent may be outside this store.
    TableColumn("parent", KEY, null=True, is_name=True, imported=True),
    TableColumn("forked_at", INTEGER, null=True),
    TableColumn("started", REAL),
    TableColumn("last_active", REAL),
    TableColumn("ended", REAL, null=True),
    TableColumn("end_reason", TEXT, null=True),
    TableColumn("next_position", INTEGER),
    TableColumn("message_count", INTEGER, derived=True),
    TableColumn("tool_call_count", INTEGER, derived=True),
    *(TableColumn(name, INTEGER, default="0") for name in USAGE_COLUMNS),
    TableColumn("template", TEXT, null=True, updatable=True),
    TableColumn("arm", TEXT, null=True, updatable=True),
    TableColumn("cwd", TEXT, null=True, updatable=True, imported=True),
    TableColumn("git_branch", TEXT, null=True, updatable=True, imported=True),
    TableColumn("preview", TEXT, null=True, derived=True),
    TableColumn("archived", REAL, null=True),
    TableColumn("pruned", REAL, null=True),
    TableColumn("changes", INTEGER, default="0"),  # incremented by every UPDATE of the row
    TableColumn("is_escaped", SMALL, default="0"),  # 1 if a text in this row must be unescaped
    TableColumn("template_revision", INTEGER, null=True, since=6),
    TableColumn("prelude", TEXT, null=True, since=6),  # a hash
    # One for lists of all sources and of one: a second would have to be written with every message.
    Index("sessions_recent", "last_active, source WHERE pruned IS NULL"),
    Index("sessions_owner", "owner, last_active WHERE owner <> ''"),
    Index("sessions_title", "owner, title WHERE title IS NOT NULL AND pruned IS NULL", unique=True),
    Index("sessions_lineage", "title_base, title_number WHERE title IS NOT NULL"),
    Index("sessions_parent", "parent WHERE parent IS NOT NULL"),
    Index("sessions_pruned", "pruned WHERE pruned IS NOT NULL"),
    Index("sessions_template", "template, last_active WHERE template IS NOT NULL"),
    Index("sessions_prelude", "prelude WHERE prelude IS NOT NULL"),
)
# `position` orders the messages of a session. Ids follow the order of arrival: new rows go to the
# end of the file, and small ids keep the search index small.
MESSAGES = Table(
    "messages",
    TableColumn("id", ROWID),
    TableColumn("session", INTEGER, constraint="REFERENCES sessions (num)"),
    TableColumn("position", INTEGER),
    TableColumn("role", TEXT),
    TableColumn("time", REAL),
    TableColumn("rewind", INTEGER, null=True),  # the rewind that removed it from the conversation
    TableColumn("origin", INTEGER, null=True),  # the message that a fork copied it from
    TableColumn("calls", SMALL, default="0"),
    TableColumn(
        "tool_call_id", TEXT, null=True
    ),  # id of the call that this message is the result of
    TableColumn("platform_id", KEY, null=True, field="platform_message_id"),
    # Names of the tools it calls or has results of, each between spaces.
    TableColumn("tools", TEXT, null=True),
    TableColumn("body", TEXT, null=True),  # everything except plain text content, as JSON
    TableColumn("content", TEXT, null=True),
    Index("messages_place", "session, position", unique=True),
    # Not unique: a rewrite may repeat messages. `append` checks for duplicates in its transaction.
    Index("messages_platform", "session, platform_id WHERE platform_id IS NOT NULL"),
)
REWINDS = Table(
    "rewinds",
    TableColumn("num", SERIAL),
    TableColumn("session", INTEGER, constraint=_OF_SESSION),
    TableColumn("kind", TEXT),
    TableColumn("since", INTEGER),
    TableColumn("messages", INTEGER),
    TableColumn("time", REAL),
    TableColumn("restored", REAL, null=True),
    Index("rewinds_session", "session, num"),
)
IMPORTS = Table(
    "imports",
    TableColumn("path", KEY, primary=True),
    TableColumn("stamp", TEXT),
    TableColumn("imported_at", REAL),
    has_rowid=False,
)
# Usage of each model in a session. Usage that is not listed here (imported with the session, or
# counted by an older version) belongs to the model of the session.
USAGE = Table(
    "usage",
    TableColumn("session", INTEGER, constraint=_OF_SESSION),
    TableColumn("model", KEY),
    *(TableColumn(name, INTEGER) for name in USAGE_COLUMNS),
    key="session, model",
    has_rowid=False,
)
# A route maps the key of a conversation to its current session.
ROUTES = Table(
    "routes",
    TableColumn("key", KEY, primary=True),
    TableColumn("session", TEXT),  # an id: the session row is created with the first message
    TableColumn("previous", TEXT, null=True),  # the previous session, for /back
    TableColumn("created", REAL),
    TableColumn("updated", REAL),
    TableColumn("origin", TEXT),
    TableColumn("display_name", TEXT),
    TableColumn("platform", TEXT),
    TableColumn("chat_type", TEXT),
    TableColumn(
        "reset", TEXT, null=True
    ),  # reason of an automatic reset, until the user is notified
    TableColumn("tokens", TEXT),
    TableColumn("changes", INTEGER, default="0"),
    TableColumn("usage", TEXT, default="'{}'", since=5),  # per model, over all sessions
    TableColumn(
        "listed_sessions", TEXT, null=True, since=5
    ),  # the sessions listed last, for selection by number
    Index("routes_updated", "updated"),
)
# Received messages in order of arrival. Answered ones are kept for a while, so that a message which
# a platform delivers twice is not answered twice.
INBOX = Table(
    "inbox",
    TableColumn("num", SERIAL),
    TableColumn("key", KEY),
    TableColumn("platform_id", KEY, null=True),
    TableColumn("source", TEXT),
    TableColumn("body", TEXT, field="message"),
    TableColumn("state", TEXT),  # waiting, running, done, failed, undeliverable
    TableColumn("session", TEXT, null=True),  # where the message was stored when its turn began
    TableColumn("position", INTEGER, null=True),
    TableColumn("reason", TEXT, null=True),
    TableColumn("time", REAL),
    TableColumn("attempts", INTEGER, default="0", since=5),  # how often its turn was started
    Index("inbox_platform", "key, platform_id WHERE platform_id IS NOT NULL", unique=True),
    Index("inbox_open", "key, num WHERE state IN ('waiting', 'running')"),
    Index("inbox_time", "time WHERE state IN ('done', 'failed')"),
    Index("inbox_undeliverable", "num WHERE state = 'undeliverable'"),
)
OUTBOX = Table(
    "outbox",
    TableColumn("num", SERIAL),
    TableColumn("key", KEY),
    TableColumn("inbox", INTEGER, null=True, field="reply_to"),  # number of the message it answers
    TableColumn("target", TEXT),
    TableColumn("text", TEXT),
    TableColumn("state", TEXT),  # waiting, sent, failed
    TableColumn("attempts", INTEGER, default="0"),
    TableColumn("next_try", REAL),
    TableColumn("platform_id", KEY, null=True, field="platform_message_id"),
    TableColumn("reason", TEXT, null=True),
    TableColumn("time", REAL),
    Index("outbox_open", "next_try, num WHERE state = 'waiting'"),
    Index("outbox_key", "key, num"),
    Index("outbox_time", "time WHERE state IN ('sent', 'failed')"),
)
# Which gateway works on a conversation: one at a time, and only while it renews its lease.
LEASES = Table(
    "leases",
    TableColumn("key", KEY, primary=True),
    TableColumn("instance", TEXT),
    TableColumn("expires", REAL),
    has_rowid=False,
)
# The chat of each platform for messages that belong to no conversation.
HOME_CHATS = Table(
    "home_chats",
    TableColumn("platform", KEY, primary=True),
    TableColumn("source", TEXT),
    has_rowid=False,
)
# Verdicts on tool calls. Derived data: may be deleted at any time.
CALLS = Table(
    "calls",
    TableColumn("session", INTEGER, constraint=_OF_SESSION),
    TableColumn("position", INTEGER),  # position of the message that makes the call
    TableColumn("number", INTEGER),
    TableColumn("id", TEXT),
    TableColumn("tool", TEXT),
    TableColumn("tool_kind", TEXT),
    TableColumn("digest", INTEGER),
    TableColumn("outcome", TEXT),
    TableColumn("failed", INTEGER, null=True),
    TableColumn("error_kind", TEXT, null=True),
    TableColumn("fault", TEXT, null=True),
    TableColumn("rule", TEXT),
    TableColumn("confidence", REAL),
    TableColumn("duration", REAL, null=True),
    TableColumn("result_position", INTEGER, null=True),
    key="session, position, number",
    has_rowid=False,
)
# How far a session was judged, by which rules, and its state at that time.
JUDGED_SESSIONS = Table(
    "judged_sessions",
    TableColumn("session", INTEGER, primary=True, constraint=_OF_SESSION),
    TableColumn("rules", TEXT),
    TableColumn("changes", INTEGER),
    # Rewinds made and restored: if this changes, the whole session is judged again.
    TableColumn("rewinds", INTEGER),
    TableColumn("since", INTEGER),  # first position to judge again when there are new messages
    TableColumn("compressions", TEXT),
)
# Mined sessions. Derived data, like the next six tables. Rows of the next three are deleted by
# a trigger: a foreign key would look up the session for each of the many inserted rows.
MINING_RESULTS = Table(
    "mining_results",
    TableColumn("session", INTEGER, primary=True, constraint=_OF_SESSION),
    TableColumn("rules", TEXT),
    TableColumn("changes", INTEGER),
    TableColumn("family", INTEGER),  # sessions that continue each other count once
    TableColumn("task", TEXT),
    TableColumn("judged", INTEGER),  # number of judged calls, and of failed ones
    TableColumn("failed", INTEGER),
    # Error rate of the last fifth of the calls minus that of the first.
    TableColumn("gain", REAL, null=True),
    Index("mining_results_family", "family"),
)
MINING_CALLS = Table(
    "mining_calls",
    TableColumn("session", INTEGER, primary=True),
    TableColumn("calls", BLOB),  # calls used by candidates, as JSON, redacted
)
# Candidates of the same shape differ only in their slot values.
CANDIDATES = Table(
    "candidates",
    TableColumn("session", INTEGER),
    TableColumn("shape", INTEGER),  # a digest
    TableColumn("family", INTEGER),
    TableColumn("kind", TEXT),
    TableColumn("location", TEXT),  # positions of its calls among those of the session
    TableColumn("support", INTEGER),  # how often in this session
    TableColumn("tainted", INTEGER),
    Index("candidates_shape", "shape, session"),
    key="session, shape",
    has_rowid=False,
)
# How often each type of call was made and failed: an example helps most where many fail.
CALL_TYPE_COUNTS = Table(
    "call_type_counts",
    TableColumn("session", INTEGER),
    TableColumn("call_type", TEXT),
    TableColumn("calls", INTEGER),
    TableColumn("failed", INTEGER),
    key="session, call_type",
    has_rowid=False,
)
# Sums over mining results, so that the cost of a run depends only on what is new.
CANDIDATE_COUNTS = Table(
    "candidate_counts",
    TableColumn("shape", INTEGER, primary=True),
    TableColumn("kind", TEXT),
    TableColumn("families", INTEGER),  # independent sessions that had it
    TableColumn("support", INTEGER),
)
CALL_TYPE_TOTALS = Table(
    "call_type_totals",
    TableColumn("call_type", KEY, primary=True),
    TableColumn("calls", INTEGER),
    TableColumn("failed", INTEGER),
    has_rowid=False,
)
# The number of sessions in the sums. If fewer exist, because some were deleted, they are rebuilt.
COUNTS_STATE = Table(
    "counts_state",
    TableColumn("id", INTEGER, primary=True, constraint="CHECK (id = 1)"),
    TableColumn("sessions", INTEGER),
)
# The index of the template files, for selection. It is always rebuilt from the files.
TEMPLATES = Table(
    "templates",
    TableColumn("num", SERIAL),
    TableColumn("id", KEY, constraint="UNIQUE"),
    TableColumn("revision", INTEGER),
    TableColumn("stamp", TEXT),  # stamp of the file it was read from
    TableColumn("state", TEXT),
    TableColumn("task_type", TEXT),
    TableColumn("head", TEXT),  # everything except the patterns, as JSON
)
PATTERNS = Table(
    "patterns",
    TableColumn("num", SERIAL),
    TableColumn("template", INTEGER, constraint="REFERENCES templates (num) ON DELETE CASCADE"),
    TableColumn("id", TEXT),
    TableColumn("kind", TEXT),
    TableColumn("tools", TEXT),  # names, each between spaces
    TableColumn("tainted", INTEGER),
    TableColumn("score", REAL),
    TableColumn("body", TEXT),  # the pattern, as JSON
    Index("patterns_template", "template, score"),
)
# The exact bytes of the messages that warm sessions were started with.
PRELUDES = Table(
    "preludes",
    TableColumn("hash", KEY, primary=True),
    TableColumn("body", BLOB),
    TableColumn("time", REAL),
    has_rowid=False,
)
EXPERIMENTS = Table(
    "experiments",
    TableColumn("num", SERIAL),
    TableColumn("name", KEY, constraint="UNIQUE"),
    TableColumn("state", TEXT),
    TableColumn("arms", TEXT),  # names and shares, as JSON
    TableColumn("seed", TEXT),
    TableColumn("settings", TEXT),  # as JSON
    TableColumn("started", REAL),
    TableColumn("ended", REAL, null=True),
)
# The arm each session was assigned to before its first message.
ASSIGNMENTS = Table(
    "assignments",
    TableColumn("experiment", INTEGER, constraint="REFERENCES experiments (num) ON DELETE CASCADE"),
    TableColumn("root", KEY),  # the first session of a lineage: its children share the arm
    TableColumn("owner", TEXT),
    TableColumn("arm", TEXT),
    TableColumn("time", REAL),
    key="experiment, root",
    has_rowid=False,
)

# In the order above, which is that of their references.
TABLES = tuple(value for value in [*vars().values()] if isinstance(value, Table))
