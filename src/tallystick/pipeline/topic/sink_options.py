"""The options of writing with the format ``tally-topic``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tallystick.admin.dev_lookup import find_name_server
from tallystick.bookkeeper.stream.splice.record import application_name
from tallystick.errors import UsageError
from tallystick.pipeline.option_values import AT_LEAST_ONCE, ONCE, OptionValues
from tallystick.pipeline.topic.options import OPTIONS, SECURITY, name_servers_of, security_of
from tallystick.rocketmq.client.arguments import check_topic
from tallystick.rocketmq.remoting.security import BrokerSecurity

SORTED, ARRIVAL = "sorted", "arrival"

SINK_OPTIONS = {
    "path": "what save(path) and start(path) say: the topic",
    "nameServer": OPTIONS["nameServer"],
    **SECURITY,
    "topic": "the topic to write; it exists already",
    "application": "of a streaming query: a name that is kept for good (default: the query's id). With a name of its "
    "own a query that lost its checkpoint is refused, and sends nothing twice",
    "txnAppId": "of a batch: the name of who writes, kept for good",
    "txnVersion": "of a batch: its number, above that of the batch before; a number that is recorded already is sent "
    "no second time",
    "delivery": "exactly-once: an error where a broker does not know how; at-least-once: without identities, rows may "
    "come twice; default: exactly-once, and at-least-once with a note where a broker does not know how",
    "order": "sorted (the default): a task sorts its rows, so that a batch that is repeated is the same whatever order "
    "its rows arrive in; arrival: as they arrive, which must be the same each time",
    "partitions": "of a batch: the number of its tasks (default: asked of the driver, where tallystick.spark.register "
    "was called)",
    "checkpointLocation": "Spark's own",
}


@dataclass(frozen=True)
class TopicSinkOptions:
    """All options, checked. ``application`` is None where it is the query's id, or unnecessary; ``version`` is a
    batch's; ``delivery`` is None where the brokers decide; ``checkpoint`` is a streaming query's own, None where it is
    not known here."""

    name_servers: tuple[str, ...]
    topic: str
    application: str | None
    version: int | None
    delivery: str | None
    is_sorted: bool
    partitions: int | None
    checkpoint: str | None = None
    security: BrokerSecurity | None = None

    @classmethod
    def parse(
        cls, options: Mapping[str, str], environment: Mapping[str, str] | None = None, *, follows: bool
    ) -> TopicSinkOptions:
        """From Spark's options. ``environment``: None is the process's. ``follows``: of a streaming query, or of a
        batch. Raises UsageError."""
        values = OptionValues(options, SINK_OPTIONS).with_path("topic")
        if "topic" not in values:
            raise UsageError("give the option topic: which topic is to be written")
        topic = values.text("topic")
        check_topic(topic)
        delivery = values.choice("delivery", (ONCE, AT_LEAST_ONCE)) if "delivery" in values else None
        values.check_writer(is_once=delivery != AT_LEAST_ONCE, follows=follows, of_once=("order", "partitions"))
        application = values.text("application" if follows else "txnAppId")
        return cls(
            name_servers=name_servers_of(values.given_or("nameServer", lambda: find_name_server(environment))),
            topic=topic,
            application=application_name(application) if application else None,
            version=None if follows else values.integer("txnVersion", 0),
            delivery=delivery,
            is_sorted=values.choice("order", (SORTED, ARRIVAL)) == SORTED,
            partitions=values.integer("partitions", 0, least=1) or None,
            security=security_of(values),
            checkpoint=values.text("checkpointLocation") or None,
        )
