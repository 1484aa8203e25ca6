"""Certificates of this machine, made by the command `openssl`; tests that need them are skipped without it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")


def write_certificate(folder: Path, name: str = "localhost") -> tuple[Path, Path]:
    """Write a self-signed certificate of 127.0.0.1 and its key as cert.pem and key.pem, and return their paths."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
    ]
    command += ["-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command, "-keyout", key, "-out", cert], check=True, capture_output=True, timeout=60)
    return cert, key
