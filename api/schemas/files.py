"""Files and uploads. Fields that OpenAI's document does not allow to be null are absent where there is no value."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType

from .common import Body

Binary = Annotated[str, msgspec.Meta(extra_json_schema={"format": "binary"})]
"""Bytes as they are, in a description; never decoded."""


class FileObject(msgspec.Struct, kw_only=True):
    """A stored file."""

    id: str
    object: str = "file"
    bytes: int
    created_at: int
    filename: str
    purpose: str
    status: str = "processed"
    expires_at: int | UnsetType = UNSET


class FileList(msgspec.Struct, kw_only=True):
    """A page of files. The ids are null where it is empty."""

    object: str = "list"
    data: list[FileObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


class DeletedFile(msgspec.Struct, kw_only=True):
    """A file that is no more."""

    id: str
    object: str = "file"
    deleted: bool = True


class FileForm(msgspec.Struct, kw_only=True):
    """The form that brings a file."""

    file: Binary
    purpose: str
    anchor: str | UnsetType = msgspec.field(default=UNSET, name="expires_after[anchor]")
    seconds: int | UnsetType = msgspec.field(default=UNSET, name="expires_after[seconds]")


class PartForm(msgspec.Struct, kw_only=True):
    """The form that brings a part of a file."""

    data: Binary


class ExpiresAfter(Body, kw_only=True):
    """When a file is to be removed."""

    anchor: str
    seconds: int


class UploadRequest(Body, kw_only=True):
    """Announces a file that will come in parts. Its `mime_type` is not used."""

    filename: str
    purpose: str
    bytes: int
    mime_type: str | None = None
    expires_after: ExpiresAfter | None = None


class CompleteRequest(Body, kw_only=True):
    """Says which parts, in which order, are the file; `md5` is of its bytes, as hexadecimal digits."""

    part_ids: list[str]
    md5: str | None = None


class Upload(msgspec.Struct, kw_only=True):
    """A file that comes in parts."""

    id: str
    object: str = "upload"
    bytes: int
    created_at: int
    filename: str
    purpose: str
    status: str
    expires_at: int
    file: FileObject | UnsetType = UNSET


class UploadPart(msgspec.Struct, kw_only=True):
    """A part of it."""

    id: str
    object: str = "upload.part"
    created_at: int
    upload_id: str
