"""Fault points: silent without a fault file, and acting exactly once with one."""
import ast
from pathlib import Path

import pytest

import nodeworker
from nodeworker.faults import FAULT_POINTS, InjectedFault, fault


def test_without_a_fault_file_nothing_happens(monkeypatch, tmp_path):
    monkeypatch.delenv("SVC_FAULT_FILE", raising=False)
    fault("create.spawned")
    monkeypatch.setenv("SVC_FAULT_FILE", str(tmp_path / "none"))
    fault("create.spawned")


def test_a_fault_acts_once_and_only_at_its_point(monkeypatch, tmp_path):
    path = tmp_path / "fault"
    path.write_text("wake.loaded raise")
    monkeypatch.setenv("SVC_FAULT_FILE", str(path))
    fault("create.spawned")
    with pytest.raises(InjectedFault, match="wake.loaded"):
        fault("wake.loaded")
    fault("wake.loaded")
    assert path.with_name("fault.done").exists()


def test_a_point_that_is_not_listed_is_a_mistake(monkeypatch, tmp_path):
    path = tmp_path / "fault"
    path.write_text("wake.loaded raise")
    monkeypatch.setenv("SVC_FAULT_FILE", str(path))
    with pytest.raises(AssertionError):
        fault("wake.lauded")


def test_every_point_in_the_code_is_listed_and_every_listed_one_is_in_the_code():
    found = set()
    for path in Path(nodeworker.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func,
                                                         ast.Name) and node.func.id == "fault":
                argument = node.args[0]
                if isinstance(argument, ast.Constant):
                    found.add(argument.value)
                elif isinstance(argument, ast.JoinedStr):
                    tail = argument.values[-1]
                    if isinstance(tail, ast.Constant):
                        found |= {f"{task}{tail.value}" for task in ("create", "wake", "spare")}
    assert found <= set(FAULT_POINTS)
    assert set(FAULT_POINTS) - found == set()
