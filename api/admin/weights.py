"""Replaces the weights of a served model by those of another checkpoint, for administrators."""

from __future__ import annotations

import asyncio
from pathlib import Path

from llmfw.core.base.errors import ModelError, RequestError
from llmfw.core.base.user_path import user_path
from llmfw.core.base.weights_command import LoadWeights, WeightsInfo
from llmfw.core.client.client import EngineClient
from llmfw.core.model.files.checkpoint_form import CheckpointForm
from llmfw.core.model.files.model_folder import model_files


class WeightsService:
    """Loads other checkpoints of a model.

    Args:
        client: a started engine client.
        folder: folder of the checkpoints that may be loaded (`--weights-from`); None: none may.
    """

    def __init__(self, client: EngineClient, folder: str | None) -> None:
        self._client = client
        self._folder = None if folder is None else user_path(folder, "--weights-from").resolve()
        self._loading: set[asyncio.Task[WeightsInfo]] = set()
        self._form: CheckpointForm | str = ""
        if folder is not None:
            self._form = _form_of(client.info.model)  # now: the files may be changed later

    async def load(self, path: str, timeout_s: float, *, waits: bool) -> WeightsInfo:
        """Check a checkpoint, and serve it in place of the current one.

        Goes on when the caller is cancelled, because the engine is between two checkpoints meanwhile.

        Args:
            path: folder of the checkpoint: below the folder of the settings, or relative to it.
            timeout_s: longest time to wait for running requests, in seconds.
            waits: whether running requests may end; if not, they end with an error.

        Raises:
            RequestError: the checkpoint does not exist, may not be loaded, or differs in more than its weights; the
                weights stay.
            ConflictError: requests still run after `timeout_s` seconds; the weights stay.
            EngineError: the engine cannot load the checkpoint; the weights are those of before.
        """
        found = await asyncio.to_thread(self._checked, path)
        loading = asyncio.create_task(self._load(LoadWeights(str(found), timeout_s, aborts=not waits)))
        self._loading.add(loading)
        loading.add_done_callback(self._loading.discard)
        return await asyncio.shield(loading)

    async def _load(self, command: LoadWeights) -> WeightsInfo:
        answer = await self._client.control(command)
        assert isinstance(answer, WeightsInfo), f"the engine answered LoadWeights by {answer!r}"
        return answer

    def _checked(self, path: str) -> Path:
        """Return the folder of a checkpoint that may be loaded; raise RequestError otherwise."""
        if self._folder is None:
            raise RequestError(
                "this server loads no other weights; start it with --weights-from FOLDER to allow the checkpoints in there",
                code="unsupported_operation",
            )
        if isinstance(self._form, str):
            raise RequestError(
                f"the weights of this model cannot be replaced: {self._form}", code="unsupported_operation"
            )
        try:
            found = (self._folder / path).resolve()
            if not found.is_relative_to(self._folder):
                raise RequestError(
                    f"path is {path!r:.200}, which is not below the folder of --weights-from; give a folder in there",
                    param="path",
                )
            if not found.is_dir():
                raise RequestError(
                    f"path is {path!r:.200}, which is no folder; give the folder of a checkpoint",
                    param="path",
                )
            difference = self._form.difference(CheckpointForm.of(found))
        except (ModelError, OSError, ValueError) as error:  # ValueError: a NUL in the path
            raise RequestError(
                f"the checkpoint cannot be read: {error}", param="path", code="weights_not_loaded"
            ) from error
        if difference:
            raise RequestError(
                f"the checkpoint cannot take the place of the served model: {difference}",
                param="path",
                code="weights_not_loaded",
            )
        return found


def _form_of(model: str) -> CheckpointForm | str:
    """Return the form of a model's checkpoint, or the reason why there is none."""
    try:
        return CheckpointForm.of(model_files(model))
    except (ModelError, OSError) as error:
        return str(error)
