"""The services that a plugin's HTTP route may use: generation, embeddings, scores, tokens, chats and files.

All services act for the caller of the route. Requests of the route count for the caller's tenant and wait in
the tenant's queue, and the route sees only the caller's files. Importing this module imports no web framework
and no torch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence

import msgspec

from llmfw.core.base.request import GrammarSpec, SamplingParams, TokenLogprob

from .chat_template import Message
from .file_store import FileRecord

Prompt = str | Sequence[int]
"""A prompt as text, or as token ids. Text gets the tokenizer's special tokens, as in /v1/completions."""


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """The sender of the request that a route answers.

    Attributes:
        tenant: name of the API key; "" if the server has no keys, or a single key without a name.
        is_key: whether the tenant is the name of an API key. Callers without a named key are all one tenant.
        is_admin: whether the caller may use the routes under /admin with this key.
        scopes: names of the caller's scopes, from `SCOPES`; None: all scopes.
    """

    tenant: str
    is_key: bool
    is_admin: bool
    scopes: frozenset[str] | None = None


class TextPiece(msgspec.Struct, frozen=True, kw_only=True):
    """The part that one event adds to a generated text.

    Attributes:
        text: new text; may be empty while a character or a stop string is incomplete.
        token_ids: new tokens, including the end-of-sequence or stop token.
        finish_reason: "stop" or "length" with the last piece, else None.
    """

    text: str
    token_ids: Sequence[int]
    finish_reason: str | None = None


class GeneratedText(msgspec.Struct, frozen=True, kw_only=True):
    """A whole generated text.

    Attributes:
        text: the text, without stop strings.
        token_ids: all tokens, including the end-of-sequence or stop token.
        finish_reason: "stop" or "length".
        prompt_tokens: number of the prompt's tokens.
        cached_tokens: number of the prompt's tokens that came from the prefix cache.
        logprobs: log probability of each of `token_ids`; empty unless `generate` was asked for them.
    """

    text: str
    token_ids: Sequence[int]
    finish_reason: str
    prompt_tokens: int
    cached_tokens: int
    logprobs: Sequence[TokenLogprob] = ()


class Embeddings(msgspec.Struct, frozen=True, kw_only=True):
    """Vectors of texts.

    Attributes:
        vectors: a vector for each text, in order.
        prompt_tokens: number of tokens of all texts together.
    """

    vectors: Sequence[Sequence[float]]
    prompt_tokens: int


class ContinuationScore(msgspec.Struct, frozen=True, kw_only=True):
    """How likely a continuation of a prompt is.

    Attributes:
        logprob: sum of `token_logprobs`, a natural logarithm.
        token_ids: tokens of the continuation.
        token_logprobs: log probability of each token after the prompt and the tokens before it, by the
            model's own logits.
    """

    logprob: float
    token_ids: Sequence[int]
    token_logprobs: Sequence[float]


class Scores(msgspec.Struct, frozen=True, kw_only=True):
    """Scores of continuations.

    Attributes:
        continuations: a score for each continuation, in order.
        prompt_tokens: number of tokens that the engine was sent.
    """

    continuations: Sequence[ContinuationScore]
    prompt_tokens: int


class Classifications(msgspec.Struct, frozen=True, kw_only=True):
    """Scores of texts by a model with a classification head.

    Attributes:
        labels: names of the scores of each text.
        activation: function that turns logits into scores, by the model's files: "sigmoid", "softmax" or
            "identity".
        logits: a row for each text: the logit of each label.
        scores: a row for each text: the score of each label.
        prompt_tokens: number of tokens of all texts together.
    """

    labels: Sequence[str]
    activation: str
    logits: Sequence[Sequence[float]]
    scores: Sequence[Sequence[float]]
    prompt_tokens: int


class CallerFiles(ABC):
    """The caller's files. Files of other tenants do not exist here; an administrator sees all files.

    Raises:
        NotFoundError: from every method with an id: the caller has no such file.
        StorageError: from every method: the store cannot do it now; nothing has changed.
    """

    @abstractmethod
    async def create(self, filename: str, purpose: str, content: AsyncIterator[bytes]) -> FileRecord:
        """Store a file that belongs to the caller. Nothing is stored if `content` raises.

        Args:
            filename: any text that is not empty; never used as a path.
            purpose: a purpose that POST /v1/files accepts, such as "user_data".

        Raises:
            RequestError: the name or the purpose is wrong.
            TooLargeError: the content is larger than an upload may be.
        """

    @abstractmethod
    async def list(self, *, purpose: str | None = None, after: str | None = None) -> Sequence[FileRecord]:
        """Return up to 100 files, the oldest first.

        Args:
            purpose: purpose of the files; None: any purpose.
            after: id of the last file of the previous page; None: the first page.
        """

    @abstractmethod
    async def get(self, file_id: str) -> FileRecord:
        """Return the record of a file."""

    @abstractmethod
    def read(self, file_id: str) -> AsyncGenerator[bytes, None]:
        """Yield the content of a file in pieces."""

    @abstractmethod
    async def delete(self, file_id: str) -> None:
        """Remove a file.

        Raises:
            ConflictError: an unfinished batch needs the file.
        """


class RouteServices(ABC):
    """What a plugin's route may do on the server, on behalf of its caller.

    A handler that declares the argument `state: State` finds this object in `state["services"]`. It acts for
    the caller of the request that is being handled, also in tasks that the handler creates. All methods are
    called on the event loop. Cancelling a call, or closing its iterator, aborts its requests.
    """

    @property
    @abstractmethod
    def caller(self) -> Caller:
        """The caller of the request that is being handled."""

    @property
    @abstractmethod
    def files(self) -> CallerFiles:
        """The caller's files."""

    @property
    @abstractmethod
    def task(self) -> str:
        """The model's task: "generate", "embed" or "classify". Methods for other tasks raise RequestError."""

    @property
    @abstractmethod
    def has_chat_template(self) -> bool:
        """Whether the model has a chat template, which `render` needs."""

    def for_model(self, model: str | None) -> RouteServices:
        """Return the services of the model that a request names; None: of the server's first model.

        `state["services"]` itself has those of the first model.

        Raises:
            ModelNotFoundError: the server does not serve this model.
        """
        self.check_model(model)
        return self

    @abstractmethod
    def check_model(self, model: str | None) -> None:
        """Check the model that a request names; None: any.

        Raises:
            ModelNotFoundError: the server does not serve this model.
            EngineDeadError: the engine is dead.
        """

    @abstractmethod
    async def generate(
        self,
        prompt: Prompt,
        sampling: SamplingParams | None = None,
        *,
        logprobs: int | None = None,
        grammar: GrammarSpec | None = None,
        priority: int = 0,
        timeout_s: float | None = None,
    ) -> GeneratedText:
        """Generate a text and return it as a whole.

        Args:
            prompt: text, which gets the tokenizer's special tokens as in /v1/completions, or token ids.
            sampling: sampling parameters; None: the model's own defaults, up to the end of the context.
            logprobs: number of most likely tokens to report with the log probability of each token, 0 to 20;
                None: no log probabilities.
            grammar: grammar that the text must match; None: none.
            priority: priority, for policies that use it.
            timeout_s: seconds after which the request fails; None: never.

        Raises:
            RequestError: an argument is wrong, or the model does not generate.
            TypeError: an argument has a wrong type; the message names the argument. The other methods raise
                TypeError, too.
            OverloadedError: the queue is full, or the tenant's share of it is.
            DeadlineError: the timeout has passed.
            EngineError: the engine failed.
        """

    @abstractmethod
    def stream(
        self,
        prompt: Prompt,
        sampling: SamplingParams | None = None,
        *,
        grammar: GrammarSpec | None = None,
        priority: int = 0,
        timeout_s: float | None = None,
    ) -> AsyncGenerator[TextPiece, None]:
        """Generate a text and yield it as it comes; the last piece has a finish reason.

        Args, Raises: as in `generate`; errors come before the first piece, or later.
        """

    @abstractmethod
    async def embed(self, texts: Sequence[str], *, timeout_s: float | None = None) -> Embeddings:
        """Return the vector of each text, as /v1/embeddings does.

        Raises:
            RequestError: a text is empty or too long, or the model does not embed.
            OverloadedError, DeadlineError, EngineError: as in `generate`.
        """

    @abstractmethod
    async def score(
        self, prompt: Prompt, continuations: Sequence[Prompt], *, timeout_s: float | None = None
    ) -> Scores:
        """Return the log probability of each continuation of the prompt, by a model that generates.

        Each continuation is tokenized on its own, without special tokens, and follows the prompt's tokens. If
        all continuations have one token, and these are at most 128 different ones, a single request of the
        engine scores them all. Otherwise, each continuation takes its own request.

        Args:
            prompt: text or token ids, as in `generate`.
            continuations: 1 to 4,096 texts or lists of token ids, of at least one token each.

        Raises:
            RequestError: there are no continuations or too many, one has no tokens or does not fit into the
                context, or the model does not generate.
            OverloadedError, DeadlineError, EngineError: as in `generate`.
        """

    @abstractmethod
    async def classify(
        self, inputs: Sequence[str | tuple[str, str]], *, timeout_s: float | None = None
    ) -> Classifications:
        """Return the scores of each text or pair of texts, by a model with a classification head.

        A cross-encoder has one label: the relevance of the second text of a pair for the first.

        Raises:
            RequestError: an input is empty or too long, or the model does not classify. `param` names it as
                `inputs[i]`.
            OverloadedError, DeadlineError, EngineError: as in `generate`.
        """

    @abstractmethod
    async def encode(self, text: str, *, add_special_tokens: bool = True) -> Sequence[int]:
        """Return the token ids of a text. A long text does not block the event loop.

        Raises:
            ContextLengthError: the text cannot fit into the context.
        """

    @abstractmethod
    async def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Return the text of token ids.

        Raises:
            RequestError: the model has no such token, or there are too many.
        """

    @abstractmethod
    async def count(self, text: str, *, add_special_tokens: bool = True) -> int:
        """Return the number of tokens of a text. Raises as `encode`."""

    @abstractmethod
    async def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, object]] = (),
        add_generation_prompt: bool = True,
        template_options: Mapping[str, object] | None = None,
    ) -> str:
        """Return the prompt's text for a chat with these messages, as /v1/chat/completions renders it.

        The text has its special tokens already: encode it with `add_special_tokens=False`, and give the ids
        to `generate`.

        Args:
            messages, tools: as in the OpenAI API.
            add_generation_prompt: whether to end with the start of an assistant turn.
            template_options: the request field `chat_template_kwargs`.

        Raises:
            RequestError: the messages are wrong, or the template refuses them.
        """
