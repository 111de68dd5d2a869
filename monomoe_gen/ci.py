"""A ready CI workflow for a repository with a dispatch table: ``monomoe-gen init-ci``.

Both jobs compare with the default branch; on the default branch itself, with what was there before.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from monomoe_gen.errors import MonomoeError
from monomoe_gen.files import write_atomically

LABEL = "h200"


@dataclass(frozen=True)
class Service:
    """A CI service: where it looks for workflows, and the workflow; ``@LABEL@`` is the
    runner's, ``@PACKAGES@`` what pip installs."""

    path: str
    text: str


_GITHUB = """\
# Guards the latencies of the kernels in generated/. Written by `monomoe-gen init-ci github`.
name: kernels

on:
  push:
  workflow_dispatch:

permissions:
  contents: read

env:
  # What to compare with: the default branch, or on that branch the commit before the push.
  BASE: >-
    ${{ github.ref_name == github.event.repository.default_branch && github.event.before
    || github.event.repository.default_branch }}
  DEFAULT_BRANCH: ${{ github.event.repository.default_branch }}

jobs:
  inspect:
    name: kernels, without a GPU
    runs-on: ubuntu-latest
    timeout-minutes: 30
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: "3.12"
      - name: Install
        run: pip install --constraint constraints.txt --editable @PACKAGES@
      - name: Fetch the baseline
        run: |
          git fetch --no-tags --depth=1 origin "$BASE" ||
            git fetch --no-tags --depth=1 origin "$DEFAULT_BRANCH"
          mkdir -p baseline/generated
          git archive FETCH_HEAD generated | tar -x -C baseline || echo "no generated/ there"
      - name: Check
        run: |
          monomoe-gen check --no-gpu --baseline baseline/generated \\
            --write check.md --write check.xml --write check.json
      - name: Summary
        if: always()
        run: if [ -f check.md ]; then cat check.md >>"$GITHUB_STEP_SUMMARY"; fi
      - uses: actions/upload-artifact@v4
        if: always()
        with:
          name: inspection
          path: check.*

  time:
    name: kernels, timed
    needs: inspect
    runs-on: [self-hosted, @LABEL@]
    timeout-minutes: 60
    concurrency: kernels-gpu
    steps:
      - uses: actions/checkout@v4
      - name: Install
        run: |
          python3 -m venv .venv
          .venv/bin/pip install --constraint constraints.txt --editable @PACKAGES@
      - name: Fetch the baseline
        run: |
          git fetch --no-tags --depth=1 origin "$BASE" ||
            git fetch --no-tags --depth=1 origin "$DEFAULT_BRANCH"
          mkdir -p baseline/generated
          git archive FETCH_HEAD generated | tar -x -C baseline || echo "no generated/ there"
      - name: Check
        run: |
          .venv/bin/monomoe-gen check --require-gpu --baseline baseline/generated \\
            --write check.md --write check.xml --write check.json
      - name: Summary
        if: always()
        run: if [ -f check.md ]; then cat check.md >>"$GITHUB_STEP_SUMMARY"; fi
      - uses: actions/upload-artifact@v4
        if: always()
        with:
          name: timing
          path: |
            check.*
            tuning_db/history.jsonl
"""

_GITLAB = """\
# Guards the latencies of the kernels in generated/. Written by `monomoe-gen init-ci gitlab`.
stages: [inspect, time]

.check:
  before_script:
    - python3 -m venv .venv
    - .venv/bin/pip install --constraint constraints.txt --editable @PACKAGES@
    # What to compare with: the default branch, or on that branch the commit before the push.
    - |
      if [ "$CI_COMMIT_BRANCH" = "$CI_DEFAULT_BRANCH" ]; then
        base="$CI_COMMIT_BEFORE_SHA"
      else
        base="$CI_DEFAULT_BRANCH"
      fi
      git fetch --no-tags --depth=1 origin "$base" ||
        git fetch --no-tags --depth=1 origin "$CI_DEFAULT_BRANCH"
      mkdir -p baseline/generated
      git archive FETCH_HEAD generated | tar -x -C baseline || echo "no generated/ there"
  artifacts:
    when: always
    reports:
      junit: check.xml
    paths:
      - check.*
      - tuning_db/history.jsonl

kernels-inspect:
  extends: .check
  stage: inspect
  image: python:3.12
  timeout: 30m
  script:
    - >-
      .venv/bin/monomoe-gen check --no-gpu --baseline baseline/generated
      --write check.md --write check.xml --write check.json

kernels-time:
  extends: .check
  stage: time
  tags: [@LABEL@]
  timeout: 1h
  resource_group: kernels-gpu
  script:
    - >-
      .venv/bin/monomoe-gen check --require-gpu --baseline baseline/generated
      --write check.md --write check.xml --write check.json
"""

SERVICES = {
    "github": Service(".github/workflows/kernels.yml", _GITHUB),
    "gitlab": Service(".gitlab-ci.yml", _GITLAB),
}


def packages(compilers: Sequence[str] = ()) -> str:
    """What pip has to install, with the compiler that most kernels were compiled by.

    ``compilers`` are as the table has them, such as ``nvrtc 13.0.88``. With another one the bytes
    of the cubins cannot be compared.
    """
    found = Counter(
        re.findall(r"^nvrtc ((?:12|13)\.\d+\.\d+)$", "\n".join(compilers), re.MULTILINE)
    )
    if not found:
        return "'.[cuda12,sass]'"
    version = found.most_common(1)[0][0]
    major = version.partition(".")[0]
    suffix = "-cu12" if major == "12" else ""
    return f"'.[cuda{major},sass]' nvidia-cuda-nvrtc{suffix}=={version}"


def workflow(service: str, label: str = LABEL, compilers: Sequence[str] = ()) -> str:
    """The workflow's text; its GPU job runs on runners with ``label``.

    Raises:
        MonomoeError: ``label`` is no single word.
    """
    if not re.fullmatch(r"[A-Za-z](?:[A-Za-z0-9._:/-]*[A-Za-z0-9])?", label):
        raise MonomoeError(
            f"--label {label!r}: give one label of a runner, which begins with a letter and has "
            "letters, digits and . _ : / - only"
        )
    text = SERVICES[service].text
    return text.replace("@LABEL@", label).replace("@PACKAGES@", packages(compilers))


def write_workflow(
    service: str, path: Path, label: str, compilers: Sequence[str] = (), replace: bool = False
) -> None:
    """Writes the workflow.

    Raises:
        MonomoeError: there is such a file and ``replace`` is false, or `workflow` refuses.
    """
    if path.exists() and not replace:
        raise MonomoeError(
            f"{path} is there already; give --output for another name, or --force to replace it"
        )
    text = workflow(service, label, compilers)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text.encode())
