"""What each of several bookies on one machine gets of the settings of all."""

from __future__ import annotations

import pytest

from tallystick.bookkeeper.bookie.instances import bookie_instances
from tallystick.bookkeeper.bookie.keys import SCHEMA
from tallystick.errors import UsageError
from tallystick.runtime.instance import Pages

TEXTS = {
    "metadataServiceUri": "sqlite:///srv/m.db",
    "bookieId": "b",
    "bookiePort": "3181",
    "journalDirectories": "/j",
    "ledgerDirectories": "/d1,/d2,/d3,/d4",
}


def test_each_has_an_id_a_port_and_its_share_of_the_folders() -> None:
    instances, pages = bookie_instances(TEXTS, 2)
    assert pages is None
    assert instances == [
        {
            "bookiePort": "3181",
            "bookieId": "b-1",
            "journalDirectories": "/j/instance-1",
            "ledgerDirectories": "/d1,/d2",
        },
        {
            "bookiePort": "3182",
            "bookieId": "b-2",
            "journalDirectories": "/j/instance-2",
            "ledgerDirectories": "/d3,/d4",
        },
    ]
    for own in instances:
        SCHEMA.read({**TEXTS, **own})


def test_a_journal_given_by_its_old_key_is_shared_out_too() -> None:
    texts = {key: value for key, value in TEXTS.items() if key != "journalDirectories"} | {"journalDirectory": "/j"}
    instances, _ = bookie_instances(texts, 2)
    assert [SCHEMA.read({**texts, **own}).settings.journal_dirs for own in instances] == [
        ("/j/instance-1",),
        ("/j/instance-2",),
    ]


def test_the_pages_of_each_come_behind_those_of_all() -> None:
    texts = {**TEXTS, "httpServerEnabled": "true", "httpServerHost": "127.0.0.1", "httpServerPort": "8000"}
    instances, pages = bookie_instances(texts, 4)
    assert pages == Pages("127.0.0.1", 8000)
    assert [own["httpServerPort"] for own in instances] == ["8001", "8002", "8003", "8004"]


def test_free_ports_stay_free_ones_and_an_id_from_the_address_is_no_ones_else() -> None:
    instances, _ = bookie_instances({**TEXTS, "bookiePort": "0"}, 2)
    assert [own["bookiePort"] for own in instances] == ["0", "0"]
    without = {key: value for key, value in TEXTS.items() if key != "bookieId"}
    assert all("bookieId" not in own for own in bookie_instances(without, 2)[0])


@pytest.mark.parametrize(
    "changes, count, told",
    [
        ({}, 3, "ledgerDirectories has one folder for all instances, or the same number for each"),
        ({}, 8, "ledgerDirectories has one folder for all instances"),
        ({"bookiePort": "65535"}, 2, "bookiePort is a port, for each instance another"),
        (
            {"httpServerEnabled": "true", "httpServerPort": "3180"},
            2,
            "httpServerPort and bookiePort need the same port",
        ),
        ({"httpServerEnabled": "true", "httpServerPort": "3181"}, 2, "bookiePort and the pages of all need the same"),
    ],
)
def test_what_cannot_be_shared_out_is_refused(changes: dict[str, str], count: int, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        bookie_instances({**TEXTS, **changes}, count)
