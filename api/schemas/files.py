"""Bodies of `/v1/files` and `/v1/uploads`.

Fields without a value are omitted if OpenAI's schema forbids null.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType

from .common import Body

Binary = Annotated[str, msgspec.Meta(extra_json_schema={"format": "binary"})]
"""Raw bytes in a multipart form. Used in the OpenAPI document only, never for decoding."""


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
    """A page of files. `first_id` and `last_id` are null if it is empty."""

    object: str = "list"
    data: list[FileObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


class DeletedFile(msgspec.Struct, kw_only=True):
    """Reply to the deletion of a file."""

    id: str
    object: str = "file"
    deleted: bool = True


class FileForm(msgspec.Struct, kw_only=True):
    """Multipart form of POST /v1/files."""

    file: Binary
    purpose: str
    anchor: str | UnsetType = msgspec.field(default=UNSET, name="expires_after[anchor]")
    seconds: int | UnsetType = msgspec.field(default=UNSET, name="expires_after[seconds]")


class PartForm(msgspec.Struct, kw_only=True):
    """Multipart form that uploads one part of a file."""

    data: Binary


class ExpiresAfter(Body, kw_only=True):
    """When a file expires: `seconds` after the time that `anchor` names."""

    anchor: str
    seconds: int


class UploadRequest(Body, kw_only=True):
    """Body of POST /v1/uploads: announces a file to be uploaded in parts. `mime_type` has no effect."""

    filename: str
    purpose: str
    bytes: int
    mime_type: str | None = None
    expires_after: ExpiresAfter | None = None


class CompleteRequest(Body, kw_only=True):
    """Lists the parts that make up the file, in order. `md5` is the file's MD5 digest in hexadecimal."""

    part_ids: list[str]
    md5: str | None = None


class Upload(msgspec.Struct, kw_only=True):
    """The state of an upload in parts. Only a completed upload has `file`."""

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
    """One uploaded part of a file."""

    id: str
    object: str = "upload.part"
    created_at: int
    upload_id: str
