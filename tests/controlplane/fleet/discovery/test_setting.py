"""Valid values of HEADWAY_DISCOVERY."""

from __future__ import annotations

import pytest

from controlplane.fleet.discovery.setting import DiscoverySource, parse_discovery


def test_each_form_is_parsed_and_formatted() -> None:
    text = (
        "chat=file:///etc/headway/chat.txt code=dns://vllm.internal:8000 "
        "s=srv://_vllm._tcp.example.internal a=kubernetes://llm/app=vllm,tier=gpu:8000 b=inferencepool://llm/llama"
    )
    sources = parse_discovery(text)
    assert sources == (
        DiscoverySource("chat", "file", "/etc/headway/chat.txt"),
        DiscoverySource("code", "dns", "vllm.internal", port=8000),
        DiscoverySource("s", "srv", "_vllm._tcp.example.internal"),
        DiscoverySource("a", "kubernetes", "llm", "app=vllm,tier=gpu", 8000),
        DiscoverySource("b", "inferencepool", "llm", "llama"),
    )
    assert " ".join(f"{source.pool}={source.name}" for source in sources) == text
    assert parse_discovery("  ") == ()


@pytest.mark.parametrize(
    "text",
    [
        "file:///etc/chat.txt",
        "chat=file://relative.txt",
        "chat=dns://vllm.internal",
        "chat=dns://vllm.internal:8000/path",
        "chat=srv://vllm.internal",
        "chat=srv://_vllm._tcp.internal:8000",
        "chat=kubernetes://llm/app=vllm",
        "chat=kubernetes://llm/app=vllm:99999",
        "chat=inferencepool://llm",
        "chat=consul://here",
        "c h=file:///x",
        "chat=file:///x other=file:///x",
    ],
)
def test_invalid_value_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not one of|named twice"):
        parse_discovery(text)
