"""A cluster with users, certificates and access rules is used as it is, and refusals are read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import trustme
from aiokafka import AIOKafkaProducer

from rowmill.topics.connection import BrokerUnreachable, client_options
from rowmill.topics.creation import TopicRefused, check_topics, create_topics
from tests.kit.secured import SecuredBroker

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with SecuredBroker(tmp_path_factory.mktemp("secured") / "home") as found:
        yield found


async def test_topics_and_records_pass_through_sasl_and_tls(secured: SecuredBroker) -> None:
    settings = secured.settings_of("operator", topic_prefix="passes.")
    await create_topics(settings)
    await check_topics(settings)
    async with AIOKafkaProducer(**client_options(settings)) as producer:
        assert (await producer.send_and_wait("passes.rows.input", b"{}")).offset == 0


async def test_a_user_without_rights_learns_which_one_is_missing(secured: SecuredBroker) -> None:
    settings = secured.settings_of("worker", topic_prefix="denied.")
    for act in (check_topics, create_topics):
        with pytest.raises(TopicRefused, match=r"denied\.\S+: this user may not DESCRIBE it"):
            await act(settings)


async def test_a_wrong_password_is_named(secured: SecuredBroker) -> None:
    settings = secured.settings_of("operator", kafka_sasl_password="wrong")
    with pytest.raises(BrokerUnreachable, match="Authentication failed") as caught:
        await check_topics(settings)
    assert "wrong" not in str(caught.value)


async def test_a_broker_of_another_authority_is_not_trusted(
    secured: SecuredBroker, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("other") / "authority.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    settings = secured.settings_of("operator", kafka_ssl_ca_file=other)
    with pytest.raises(BrokerUnreachable, match="its certificate is not trusted"):
        await check_topics(settings)


async def test_no_tls_where_the_broker_wants_it_is_named(secured: SecuredBroker) -> None:
    settings = secured.settings_of("operator", kafka_security_protocol="PLAINTEXT")
    with pytest.raises(BrokerUnreachable, match="ROWMILL_KAFKA_SECURITY_PROTOCOL|no answer"):
        await check_topics(settings)
