"""The registry of events: each kind has one name in the whole house, one level and one meaning.

The levels are those of ``logging``. INFO: somebody asked for it, or it takes its ordinary course. WARNING: something
failed that is tried again, made good or refused, and promises hold. ERROR: a server ends, data is damaged, or a promise
is weaker until somebody acts. ``docs/events.md`` is written from this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from logging import ERROR, INFO, WARNING

from tallystick.runtime.broker_event_kinds import BROKER, BROKER_CLIENT, NAME_SERVER, REPLICATION
from tallystick.runtime.event_kind import EventKind, kinds

_LEDGER_CLIENT = {
    **kinds(
        INFO,
        {
            "ledger created": "A new ledger is in the metadata; `ensemble` stores its first entries.",
            "ledger closed": "The ledger's end is in the metadata for good.",
            "ledger deleted": "The metadata has the ledger no more. `unfenced` bookies could not be told.",
            "ledger restored": "A degraded ledger is written to a full ensemble again.",
            "ensemble changed": "Other bookies store the ledger from entry `first` on (Q8).",
            "recovery began": "Somebody else's ledger is fenced, and its end is looked for (Q10).",
            "bookie asked to fence": "What one bookie answered to the fencing read (Q11).",
            "fence covers every write set": "No write set has an ack quorum of unfenced bookies left (Q12).",
            "recovery changed ensemble": "Recovery writes back to other bookies than those that failed.",
            "end found": "So many bookies said that an entry does not exist that it was never acknowledged (Q15).",
        },
    ),
    **kinds(
        WARNING,
        {
            "bookie failed": "Writes to a bookie fail, here first; told again after a quiet `quarantine_s` (Q7).",
            "racks not read": "A source of bookies' racks fails: what it said before counts. Told once for a reason.",
            "bookie without authentication": "A bookie did not show who it is, and `authRequired=false` lets it pass.",
            "bookie slow": "Adds to a bookie take far longer than to others: new ledgers avoid it for a while (Q4).",
            "bookie not reached": "A connection to a bookie could not be made; it is tried again after a pause.",
            "bookie connection ended": "A connection to a bookie was lost, and unanswered requests with it.",
            "bookie connection failed": "A connection to a bookie was given up because of a fault in this client.",
            "bookie broke the protocol": "A bookie sent what the protocol does not allow; the connection is closed.",
            "explicit LAC not taken": "A bookie took no LAC beside entries: readers wait longer. Told once a bookie.",
            "bookie not believed": "Another bookie answers at the address: what it says counts for nothing.",
            "ledger degraded": "A failed bookie has no replacement: the writer goes on with an ack quorum.",
            "absent bookies not replaced": "A fault: the writers of this client notice a lost bookie only by appends.",
            "degraded ledgers not restored": "Degraded ledgers stay so for now; restoring is tried again.",
            "bookie gave no certain answer": "In recovery a bookie said neither that it has an entry nor that not.",
            "fence does not cover every write set": "Too few bookies are fenced: recovery cannot go on (Q12).",
            "entry undecided": "Neither yes nor enough certain no for an entry: recovery cannot decide (Q15).",
            "length is a lower bound": "No bookie of the last entry answered, so the ledger's length may be more.",
            "write-back failed": "Recovery could not store an entry on a bookie; it looks for another one.",
            "recovery goes on degraded": "Recovery found no replacement for a failed bookie.",
            "recovery abandoned": "Nothing was closed; recovery can be tried again.",
            "writer stopped": "The writer can append no more; what was not confirmed may or may not survive.",
        },
    ),
    **kinds(ERROR, {"failure not taken": "A ledger's handling of a failed write has a fault; other ledgers go on."}),
}

_STREAM = {
    **kinds(
        INFO,
        {
            "stream opened": "This client owns the stream; `ledger` takes what is appended (Q19).",
            "numbers read from entries": "Nothing is saved of numbered appends: all entries that are kept were read.",
            "stream rolled over": "The ledger before this one is full, old or failed; `ledger` is the next (Q18).",
            "stream closed": "The stream is nobody's: whoever opens it next owns it at once.",
            "stream terminated": "The stream takes no more entries; `last` is its last position.",
            "stream handed over": "A Pulsar broker may load the stream; `deleted` is what it deletes of it then.",
            "stream taken back": "The stream has an owner of ours again; a `broker` of its namespace may load it.",
            "stream deleted": "The stream, its cursors and its ledgers are gone.",
            "stream messages expired": "What so many `cursors` have not acknowledged `up_to` this is passed over.",
            "cursor messages expired": "The cursor, at `mark`, passed over what its stream's owner let expire.",
            "backlog within its quota": "Appends to the stream are taken again.",
            "sink opened": "This client commits batches of the application into the stream, in this run.",
            "sink committed": "So many `ledgers` of a batch are part of the stream now.",
            "application forgotten": "The stream knows it no more; its newest batch was `batch` of `query`.",
            "sink swept": "So many `ledgers` were deleted that attempts wrote and no commit can list.",
            "stream trimmed": "Retention dropped so many `ledgers`, up to `last`.",
            "cursor opened": "This client owns the cursor; all up to `mark` is acknowledged.",
            "cursor closed": "The cursor is stored, and nobody's.",
            "cursor deleted": "The cursor is gone, and what it alone kept can be trimmed.",
        },
    ),
    **kinds(
        WARNING,
        {
            "stream fenced": "Another owner took the stream over; this one appends no more.",
            "stream step failed": "A step to the next ledger failed; it is tried again while appends can wait.",
            "fenced stream looked at": "Somebody fenced the newest ledger: another owner, or a repairer.",
            "lease lost": "Another client has the lease of a stream or cursor.",
            "stream ledger missing": "The list names a ledger that does not exist, on a second look; it is dropped.",
            "stream ledgers not deleted": "Their notes stay, and the next owner deletes them.",
            "stream list long": "A list of `max_bytes` takes no more commits: delete what is old, commit less often.",
            "numbers not saved": "Of numbered appends; the next owner reads more entries.",
            "stream not trimmed": "Nothing could expire, or retention not be applied, now; it is tried again.",
            "backlog exceeds its quota": "No append is taken, by the `policy` of the stream, until `cursor` is nearer.",
            "backlog not measured": "It could not be read how far cursors are; it is tried with the next append.",
            "cursor not moved": "It passed over what has expired; the next acknowledgement stores that.",
            "cursor fenced": "Another owner took the cursor over; this one stores no more.",
            "cursor ledger failed": "A ledger of a cursor takes nothing more: its node has the state, or the next one.",
            "cursor ledger lost": "A cursor's ledger is gone or empty; it goes on at `mark`, as its node has it.",
            "cursor moved": "A cursor was at a place that the stream does not have (any more); it goes on at `to`.",
            "cursor beyond bounds": "More is acknowledged one by one than is stored: the rest is in memory alone.",
            "entry left out": "A reader that skips them met an entry that is no message, or is damaged everywhere.",
            "chunks left out": "A message that lacks chunks was given up by a reader; a cursor acknowledges the rest.",
        },
    ),
}

_REPAIR = {
    **kinds(
        INFO,
        {
            "auditor elected": "This candidate is the auditor: it marks the ledgers of lost bookies.",
            "auditor stepped down": "Another candidate is, or will be, the auditor.",
            "bookie back": "A bookie that was absent is registered again.",
            "ledgers marked": "So many ledgers name a lost bookie; `marked` were not marked before.",
            "copies audited": "All `ledgers` were looked at; of `unknown` places nobody said anything.",
            "audit ordered": "An operator ordered it: who is gone is lost, and all ledgers are looked through.",
            "replica moved": "Another bookie has all that the lost one had of this fragment, and the metadata says so.",
            "replica mended": "A bookie lacked these `entries`, or had them damaged; it has good copies now.",
            "ledger repaired": "The ledger lacks no copy any more, or was deleted.",
        },
    ),
    **kinds(
        WARNING,
        {
            "bookies lost": "These bookies were gone for the whole grace: their ledgers are marked.",
            "audit held back": "Nothing is marked before another grace and another look; `reason` says why.",
            "audit put off": "The metadata could not be read whole; it is tried again.",
            "repair put off": "The metadata could not be read; it is tried again.",
            "ledger not repaired": "Copies of the ledger could not be made good now; it is tried again.",
            "copies at fault": "Bookies lack, or have damaged, what is placed there: a finding, for the replicators.",
            "entries given up": "An operator (`who`) gave up entries without a good copy: readers get EntryLost.",
            "open ledger recovered for repair": "Its writer did not replace a lost bookie: it is fenced and closed.",
        },
    ),
    **kinds(ERROR, {"repair ended": "The auditor or the replicator of this process has a fault; a bookie goes on."}),
}

_BOOKIE = {
    **kinds(
        INFO,
        {
            "cookie written": "A new bookie has joined the cluster.",
            "storage expanded": "New ledger folders came to those of the bookie (`allowStorageExpansion`).",
            "ledgers left limbo": "What this bookie lacked of them is here, or nothing is placed here.",
            "entries mended": "Damaged entries were made good from other replicas.",
            "scrub ended": "All that this bookie stores was read once.",
            "limbo ended": "This bookie knows again what it has of all its ledgers.",
            "journal replayed": "The bookie was not stopped in order; its journal was read again.",
            "metadata reached again": "The bookie has a connection to the metadata again.",
            "bookie stopped": "The bookie was stopped in order.",
            "bookie takes writes again": "The disk has room again.",
            "disk has room again": "The disk of a folder is below `diskUsageWarnThreshold` again.",
            "ledgers deleted": "The metadata has these ledgers no more: their entries were given up.",
            "surplus copies dropped": "Entries that the metadata places at others, which have them all, were dropped.",
            "ledgers replaced": "Ids were given out again: the entries of the older ledgers were given up.",
            "collection ordered": "An operator ordered a collection.",
            "collections go on": "An operator confirmed what the restored metadata lacks: `tally cluster reconcile`.",
        },
    ),
    **kinds(
        WARNING,
        {
            "address not free": "Others are registered at the bookie's address; it answers when they are no more.",
            "adds refused": "By its metadata nobody writes the ledger: its writer hears it is fenced. Once a minute.",
            "fences refused": "More ledgers without an entry here are to be fenced than the bound. Told once a while.",
            "bookie is read-only": "The bookie takes no ordinary adds; it serves reads and recovery.",
            "collections stand still": "The metadata was restored: nothing is deleted until that is confirmed.",
            "checkpoint postponed": "A checkpoint failed for lack of space; the journal keeps everything.",
            "no checkpoint at stop": "The last checkpoint failed; the next start reads the journal.",
            "deleted ledgers not looked for": "The metadata could not be read: nothing is deleted.",
            "surplus copies not looked for": "The metadata could not be read, or the disk is full: nothing is dropped.",
            "order for a collection passed over": "An order to collect could not be read or carried out.",
            "index of an entry log rebuilt": "Its file was damaged: it was made anew from its log.",
            "ledgers not looked at": "The metadata could not be read: adds count as they do without a look.",
            "metadata was copied": "The metadata was put back or moved: when ledgers were created is learnt anew.",
            "metadata not reached": "The bookie has no connection to the metadata; it may expire there.",
            "registration not removed": "The metadata did not answer a bookie that stops; it expires there.",
            "registration not changed": "The new mode of the bookie is not in the metadata yet; it is tried again.",
            "scrub begins anew": "How far the last scrub came cannot be read; what it read is read again.",
            "scrub not saved": "How far the scrub is was not kept; a restart reads that part again.",
            "scrub too slow": "At scrubBytesPerSecond this disk is not read once in two weeks.",
            "entry logs not rewritten": "For lack of space entry logs are not rewritten.",
            "wait of a large deletion not saved": "A restart of the bookie begins this wait anew.",
            "wait of large deletions begins anew": "The file that tells how long deletions have waited is unreadable.",
            "stopped with unanswered requests": "The time for a stop in order was over; clients ask again.",
        },
    ),
    **kinds(
        ERROR,
        {
            "bookie cannot go on": "The disk, the registration or a task failed: the process ends.",
            "surplus copies wait": "Very many ledgers name others for what is here: it is kept for a day.",
            "deletions wait": "The metadata lacks very many ledgers: they are kept for a day. See `tally bookie info`.",
            "entry log not deleted": "A file of entries that nobody needs could not be deleted.",
            "entry log not rewritten": "A log of entries is damaged or unreadable: it is kept as it is.",
            "bookie rejoins": "Its disk may lack entries: of these ledgers it denies nothing until they are fetched.",
            "entries damaged": "Entries on this disk are unreadable or bad: they are fetched from other replicas.",
            "entries not mended": "Damaged entries stay so for now: the event says why. Tried again.",
            "index of an entry log damaged": "It is whole in memory; the next start makes it anew from its log.",
            "ledger folder failed": "It is used no more: its ledgers are in limbo until what it had is fetched.",
            "ledger not filled": "A ledger stays in limbo for now: what lacks could not be fetched. Tried again.",
            "bad replica": "Another bookie gave an entry that does not match its digest; it was not stored.",
            "disk fills up": "The disk of a folder is above `diskUsageWarnThreshold`: the bookie will be read-only.",
            "start not counted": "The disk is full: older copies of it are told from it by their journal alone.",
            "progress not told": "The metadata does not know how far this disk is; it is told the next time.",
            "ledgers not replaced": "Ids were given out again, but the older entries could not be given up.",
            "metadata is older than the ledgers": "It was restored from an older copy, or a copy made what is here.",
            "requests refused": "A ledger here is newer than the metadata's, cannot be given up, or came back.",
        },
    ),
}

_SERVERS = {
    **kinds(
        INFO,
        {
            "connection closed": "A server closed a connection, for `reason`.",
            "connection ended": "A client of brokers lost a connection.",
            "instance serves again": "One of several that are started together was started again, and is ready.",
            "server starts": "A server's process began; `codec` is the implementation that reads its frames.",
        },
    ),
    **kinds(
        WARNING,
        {
            "access file refused": "A broker's file of users was changed and cannot be read: they stay as they were.",
            "certificates refused": "Files of TLS were changed and cannot be used: what was read before counts.",
            "connection refused": "More than the bound: one of the host with most is closed. Told once a while.",
            "disk full": "A write found no room: it waits or is refused until there is some.",
            "listening beyond this machine": "The server listens where others can reach it; `reason` has who comes in.",
            "instance not made": "The machine made no process for one of several; it is tried again after a pause.",
            "instance starts again": "One of several ended; `exit_code` is its process's, or minus the signal.",
            "log lines left out": "There were so many more events of this kind in a minute than it has lines for.",
            "log lines lost": "Nobody read this server's lines in time; so many were left out.",
            "not reached": "A server could not be connected to; it is tried again.",
            "peer broke the protocol": "The other side sent what the protocol does not allow.",
            "security file not read": "A changed file of keys or users is no good: what was read before counts.",
            "settings change nothing here": "Keys of the settings that this server does not know, or need not.",
            "slaves let in by address": "`haAllowedAddresses` has slaves copy the log without a certificate.",
            "slaves let in by any certificate": "Whoever has one of these authorities, a client too, may copy the log: "
            "name the slaves' in `haAllowedNames`.",
            "request not signed": "`allowAnonymous`, or a white address, let it pass all the same. Told once a host.",
            "peer not let in": "A peer did not show who it is, or is not let in. Told once a reason and peer.",
            "request refused": "A request was answered with an error. Told once a kind and peer.",
        },
    ),
    **kinds(
        ERROR,
        {
            "instance ended": "One of several servers that are started together ended; the others go on.",
            "request failed": "A fault in this server: the request got an error as answer, or its connection closed.",
        },
    ),
}

_TABLES = {
    **kinds(
        INFO,
        {
            "table created": "A query has made the table that it writes.",
            "batch committed": "The rows of a batch are in the table.",
            "batch skipped": "It came again, and is in the table since an earlier time.",
            "columns added": "Rows have columns that the table had not.",
            "table compacted": "Small files were `replaced` by larger ones.",
            "orphan files deleted": "Of attempts that died before a commit listed them.",
        },
    ),
    **kinds(
        WARNING,
        {
            "batch in many partitions": "A batch has rows of more than 1,000 days or hours, and made a file of each.",
            "rows set aside": "Values that did not fit are in the column `_dead_letter` as they came.",
            "table not kept": "Compaction or the search for orphan files failed; it is tried again.",
        },
    ),
}

GROUPS: Mapping[str, Mapping[str, EventKind]] = {
    "Ledger clients": _LEDGER_CLIENT,
    "Streams": _STREAM,
    "Repair": _REPAIR,
    "Bookies": _BOOKIE,
    "All servers": _SERVERS,
    "Brokers": BROKER,
    "Replication of brokers": REPLICATION,
    "Name servers": NAME_SERVER,
    "Clients of brokers": BROKER_CLIENT,
    "Tables of Spark": _TABLES,
}
KINDS: Mapping[str, EventKind] = {kind: each for group in GROUPS.values() for kind, each in group.items()}


def level_of(kind: str) -> int:
    """A number of ``logging``; WARNING for what nobody registered, so that it is seen."""
    event_kind = KINDS.get(kind)
    return WARNING if event_kind is None else event_kind.level
