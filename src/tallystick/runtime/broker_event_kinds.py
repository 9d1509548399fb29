"""The registry of events: those of brokers, their replication, name servers and clients."""

from __future__ import annotations

from logging import ERROR, INFO, WARNING

from tallystick.runtime.event_kind import kinds

BROKER = {
    **kinds(
        INFO,
        {
            "log dispatched again": "A start builds all queues again from the log, and came to `offset`.",
            "store opened": "The broker's log, queues and index are open.",
            "broker stopped": "The broker was stopped in order.",
            "registered with a name server": "The name server knows this broker's topics.",
            "all topics registered": "They fit one registration again.",
            "only broker of this id": "The other broker that was registered by its name and id is gone.",
            "topic changed": "A topic was made or changed.",
            "topics changed": "More than 100 topics of one list were made or changed.",
            "topic deleted": "A topic was deleted.",
            "group changed": "A group of consumers was made or changed.",
            "groups changed": "More than 100 groups of one list were made or changed.",
            "group deleted": "A group of consumers was deleted.",
            "access changed": "An operator changed users or policies of a broker, or its file of them was read again.",
            "sink forgotten": "An operator had how far an application came in a topic forgotten.",
            "idle groups forgotten": "Groups that made themselves, without members and offsets, made room for others.",
            "offsets reset": "An administrator set offsets of a group.",
            "files deleted": "Old files of the log, with the queue and index files that point into them, are gone.",
            "expired files are to go": "An administrator ordered that old files be deleted.",
            "queues of a deleted topic removed": "An administrator ordered it.",
            "queue begins anew": "The log has lower offsets of a queue again: its topic was deleted and made anew.",
            "queues built again": "Lost or damaged queue and index files are built again from the log.",
            "queues complete": "All queues that were lost are built again.",
            "disk below its limit": "Messages are taken again.",
            "deletions copied": "The slave knows of topics that its master deleted.",
            "deletions cut": "The slave follows another master: deletions of the one before end where its log does.",
            "slave becomes master": "A store that was a slave's is opened as a master's.",
        },
    ),
    **kinds(
        WARNING,
        {
            "no room for sinks": "The log has more than maxSinkPartitions: what is repeated of the others comes twice.",
            "cannot register with a name server": "Clients that ask it do not find this broker; it is tried again.",
            "topics not registered": "They do not fit a frame with the others: clients find no route to them.",
            "disk above its limit": "Messages are refused until old files could be deleted.",
            "another broker of this id": "Another registers by its name and id: clients find now one, now the other.",
            "commit beyond the end": "A client commits an offset that its queue does not have: it is not taken.",
            "reader beyond the end": "A pull asks beyond its queue, which was made anew or cut: it is sent back.",
            "reader of another log": "A pull goes on behind a message that is another one here: it is sent back.",
            "consumer offset cut": "A group's offset was beyond the end of its queue, after a crash.",
            "log cut": "What a crash left unfinished at the end of the log was cut off.",
            "table not saved": "A table could not be saved: what depends on it is refused, and it is tried again.",
            "pulls wait briefly": "More wait than a broker, or one connection, may hold: they are answered early.",
            "offsets not sent": "All offsets together fit no frame of the original's; slaves of ours copy pages.",
            "files of a deleted topic stay": "They could not be deleted; it is tried again.",
            "commits not taken": "A slave keeps what was committed there: its master has no room, or refuses it now.",
            "no locks left": "A client that consumes in order gets no queue; fewer are left for one that is no member.",
            "metadata not copied": "A slave could not, or may not, copy a table of its master now.",
            "log files came back": "Files before the noted beginning are there: queues are built again from the log.",
            "store not closed in order": "The last save failed; the next start recovers.",
        },
    ),
    **kinds(
        ERROR,
        {
            "broker cannot go on": "The disk or a task failed: the process ends.",
            "clock behind the log": "The clock is before the last store time: new messages get that one.",
            "log files missing": "Files of the log are gone with their messages; no note says they were deleted.",
            "record damaged": "A message in the log is unreadable; queues are built without it.",
            "queue offsets missing": "The log lacks messages of a queue: their offsets stay empty.",
            "record without a queue": "The log has a message whose topic can have no folder: unreadable. Told once.",
            "reput stopped": "The log cannot be dispatched from `offset` on: its messages are not readable.",
            "tally-queues damaged": "The broker's file of queues is damaged: queues are read or built again.",
        },
    ),
}

REPLICATION = {
    **kinds(
        INFO,
        {
            "follows master": "The slave copies its master's log from its own end on.",
            "master link closed": "The slave lost its master's connection, and connects again.",
            "slave follows": "A slave asks for the log from `position` on.",
            "slave link closed": "A slave's connection ended.",
            "slave replaced": "A slave connected again before its older connection was closed.",
        },
    ),
    **kinds(
        WARNING,
        {
            "master is unproven": "The slave's log does not continue its master's: it copies nothing.",
            "slave is unproven": "A slave's log is not this log's beginning: it is not fed and does not count.",
        },
    ),
}

NAME_SERVER = {
    **kinds(
        INFO,
        {
            "broker registered": "A broker is known.",
            "broker unregistered": "A broker left, or was not heard of for too long.",
            "name server stopped": "The name server was stopped in order.",
            "topic removed from routes": "An administrator took a topic off this name server.",
            "settings changed until the next start": "An administrator changed settings in memory.",
        },
    ),
    **kinds(
        WARNING,
        {
            "two brokers of one id": "Two that live register by one name and id: clients find now one, now the other.",
            "broker not registered": "It, or some of its topics, has no place here: all or its host have too many.",
            "order configuration not sent to brokers": "It is larger than what a broker's registration may answer.",
        },
    ),
}

BROKER_CLIENT = {
    **kinds(
        INFO,
        {
            "queues shared out": "The group's members have shared the queues out; these are ours.",
            "offset moved": "The messages at an offset are gone: the consumer goes on at the next ones.",
            "queue made anew": "Its topic was gone for a while: the consumer goes on where its group stands there.",
            "pulls answered again": "By a broker of which pulls had failed or been refused.",
            "waits for acknowledgements": "All that may be unacknowledged is: no more is pulled before some are.",
        },
    ),
    **kinds(
        WARNING,
        {
            "send retried": "A message was not taken, and is sent to another queue. It may be stored twice.",
            "pull failed": "A broker did not answer pulls; another one, or it again, is asked. Once a minute for each.",
            "pull refused": "A broker refused pulls; it is asked again. Once a minute for each.",
            "queues left out": "Of a topic with more than 65,536 queues, broker sets with the most are not used.",
            "queue not reached": "No broker has this queue now; it is tried again.",
            "queues not locked": "A master gave no locks: an ordered consumer keeps what it has 30 s. Once a minute.",
            "queues not shared out": "The members of the group could not be found out; the old share stays.",
            "broker did not take part": "A broker did not take the heartbeat.",
            "not committed": "Offsets were not taken: messages may be delivered again. Once a minute.",
            "sent back, not yet everywhere": "It is stored once more, but its broker's disk or slaves are late.",
            "sent back, not everywhere": "It is stored once more, no safer than what is sent meanwhile.",
            "not sent back": "A broker did not take a message that was given back: it is delivered here again.",
            "acknowledgement ignored": "Its queue was taken away or sought, or the message is done with already.",
            "route not found": "No name server answered where a topic is; what was known stays.",
        },
    ),
    **kinds(ERROR, {"client failed": "A background task of the client ended by a fault."}),
}
