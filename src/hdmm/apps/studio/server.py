"""The studio's application: what each address answers, from the file, the ledger and at most one run of each kind."""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias, final

from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from hdmm.apps.studio.edits import (
    AddTable,
    ChangeTable,
    Edit,
    RemoveTable,
    SetColumn,
    SetGoals,
    decoded,
    edited,
    table_texts,
)
from hdmm.apps.studio.guard import MOST_BODY, Guard, unexpected
from hdmm.apps.studio.spec_file import ChangedError, Snapshot, StudioFile
from hdmm.apps.studio.view import (
    OutlookCache,
    as_json,
    attribute_view,
    budget_step,
    budget_steps,
    budget_view,
    offer,
    publication_view,
    spec_view,
)
from hdmm.apps.studio.work import ChildRun, ReleaseRequest
from hdmm.base.exceptions import BudgetError, FileError, HdmmError, LedgerError, SpecError, SqlError
from hdmm.describe.domain import Domain
from hdmm.io.strict_json import Json
from hdmm.io.strict_records import StrictRecord, written
from hdmm.publication.budget import Budget, budget_of, check_payable
from hdmm.publication.spec import Spec
from hdmm.publication.unpublished import is_kept
from hdmm.sql import parse

_STATIC = Path(__file__).parent / "static"
_FILES = {"/": "studio.html", "/studio.js": "studio.js", "/studio.css": "studio.css", "/icon.svg": "icon.svg"}
_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
# The report is a page of its own, which brings its own policy; here it is kept apart from the studio's origin.
_OBJECTIVE = "objective was left out of [plan], because margins of error now say what a plan aims at."
_OPTIONAL = ("levels", "groups", "values", "outside", "step")  # keys of a declaration, without which it is one
_NEEDED = ("high", "last", "bins", "labels", "levels")
_REPORT_POLICY = "sandbox allow-scripts allow-modals; frame-ancestors 'none'"

Answer: TypeAlias = dict[str, Json]


class ResumeRequest(StrictRecord, frozen=True, kw_only=True):
    """Publish what is kept; `replace` agrees that an earlier publication goes."""

    replace: bool = False


@final
class Studio:
    """One specification, served."""

    def __init__(self, file: StudioFile) -> None:
        self.file = file
        self.report_key = secrets.token_urlsafe(18)  # a link cannot carry a header; this opens the report alone
        self.outlooks = OutlookCache()
        self.plan: ChildRun | None = None
        self.release: ChildRun | None = None
        self.released: dict[str, ChildRun] = {}  # by the key of the request
        self._lock = threading.Lock()

    def state(self) -> Answer:
        """All that the page shows but the margins. A file that cannot be read is shown as its error."""
        found = self.file.snapshot()
        shown: Answer = {"file": str(self.file.path), "digest": found.digest, **self._runs()}
        try:
            spec = self.file.spec(found)
            account = budget_of(spec)
        except SpecError as wrong:
            return {**shown, "error": str(wrong), "line": wrong.line}
        except HdmmError as wrong:
            return {**shown, "error": str(wrong), "line": None}
        published = publication_view(spec, account)
        return {
            **shown,
            **spec_view(spec, found),
            "budget": budget_view(spec, account),
            "steps": budget_steps(spec, account),
            "published": {**published, "link": f"/report/{self.report_key}"},
            "advice": list[Json](spec.advice),
        }

    def pulse(self) -> Answer:
        """Little, and often: whether the file changed, and how far runs are."""
        return {"digest": self.file.snapshot().digest, **self._runs()}

    def _runs(self) -> Answer:
        return {
            "plan": None if self.plan is None else self.plan.view(),
            "release": None if self.release is None else self.release.view(),
        }

    def outlook(self) -> Answer:
        """The margins by the saved plan."""
        return self.outlooks.at(self.file.spec(self.file.snapshot()))

    def step(self, text: str) -> Answer:
        """What a budget would do that is not on the slider."""
        spec = self.file.spec(self.file.snapshot())
        found = budget_step(spec, budget_of(spec), text)
        return {"step": found}

    def try_edit(self, edit: Edit) -> Answer:
        """Whether an edit makes sense, and what it makes; if not, where, and in which field. Nothing is saved."""
        found = self.file.snapshot()
        spec = self.file.spec(found)
        try:
            if isinstance(edit, AddTable | ChangeTable) and edit.table.sql is not None and "${" not in edit.table.sql:
                parse(_declared(spec), edit.table.sql)
            made = self.file.spec(Snapshot(edited(found.data, edit)))
        except SqlError as wrong:
            return {"ok": False, **_located(wrong)}
        except SpecError as wrong:
            field = self._field(found, edit, wrong) if isinstance(edit, SetColumn) else None
            return {"ok": False, "error": _without_place(wrong), "key": wrong.key, "field": field}
        groups = list(made.groups.values())
        match edit:
            case AddTable():
                tables = groups[-1]
            case ChangeTable(name=name):  # by its place, because a name may hold a variable
                tables = groups[[text["name"] for text in table_texts(found.data)].index(name)]
            case SetColumn(called=name, declaration=declaration) if declaration is not None:
                return {"ok": True, "column": attribute_view(_declared(made)[name])}
            case RemoveTable() | SetColumn() | SetGoals():
                tables = []
        return {
            "ok": True,
            "rows": sum(table.rows for table in tables),
            "count": len(tables),
            "columns": list[Json](tables[0].columns) if len(tables) == 1 else [],
        }

    def _field(self, found: Snapshot, edit: SetColumn, wrong: SpecError) -> str | None:
        """The field of a form that an error is about: the key that it names, or without which there is another error.

        Otherwise it is the last of those that there must be; None if the error is elsewhere in the file.
        """
        keys, place = edit.declaration, written((edit.part, edit.called))
        keys = {"labels": keys} if isinstance(keys, list) else keys
        if not isinstance(keys, dict):
            return None
        if wrong.file != str(self.file.path) and isinstance(keys.get("levels"), str):
            return "levels"  # a file of them
        if not f"{wrong.key}.".startswith(f"{place}."):
            return None
        if named := re.match(r"\.(\w+)", wrong.key.removeprefix(place)):
            return named[1]

        def remains(other: SetColumn) -> bool:
            try:
                self.file.spec(Snapshot(edited(found.data, other)))
            except SpecError as still:
                return still.key == written((other.part, other.called))
            return False

        if not remains(replace(edit, called=f"{edit.called}_")):
            return "called"
        for key in (key for key in _OPTIONAL if key in keys):
            rest = {other: value for other, value in keys.items() if other != key}
            if not remains(replace(edit, declaration=rest)):
                return key
        return next((key for key in _NEEDED if key in keys), None)

    def edit(self, edit: Edit, seen: str) -> Answer:
        """Save an edit if it makes sense and the file is what the page has seen."""
        with self.file.locked(seen) as found:
            before = self.file.spec(found)
            made = Snapshot(edited(found.data, edit))
            try:
                after = self.file.spec(made)
            except SpecError as wrong:
                raise FileError(_without_place(wrong)) from None
            self.file.replace(made)
        told = _OBJECTIVE if before.plan.objective is not None and after.plan.objective is None else None
        return {**self.state(), "told": told}

    def start_plan(self, seen: str) -> Answer:
        """Begin a search, unless one runs."""
        with self._lock:
            if self.plan is None or not self.plan.running:
                self._check_seen(seen)
                self.plan = ChildRun("plan", self.file, seen)
        return self._runs()

    def cancel_plan(self) -> Answer:
        """End the search with the best plan so far."""
        if self.plan is not None:
            self.plan.cancel()
        return self._runs()

    def offer(self, seen: str) -> Answer:
        """What a release would spend, to be confirmed; an error if it would be refused."""
        spec, account = self._payable(seen)
        return offer(spec, account, seen)

    def start_release(self, asked: ReleaseRequest) -> Answer:
        """Begin the release that was confirmed; the same request again is the same release, and spends once."""
        with self._lock:
            if asked.key not in self.released:
                self._refuse_two()
                self._payable(asked.digest)
                self.release = self.released[asked.key] = ChildRun("release", self.file, asked)
        return self._runs()

    def start_resume(self, asked: ResumeRequest, seen: str) -> Answer:
        """Publish what was paid for and kept."""
        with self._lock:
            self._refuse_two()
            self._check_seen(seen)
            self.release = ChildRun("resume", self.file, seen, asked.replace)
        return self._runs()

    def start_rows(self, seen: str) -> Answer:
        """Make synthetic rows from what is in the output folder."""
        with self._lock:
            self._refuse_two()
            self._check_seen(seen)
            self.release = ChildRun("rows", self.file, seen)
        return self._runs()

    def report(self, key: str) -> Path | None:
        """The report of the output folder, if this is the key to it."""
        if not secrets.compare_digest(key.encode(), self.report_key.encode()):
            return None
        try:
            page = self.file.spec(self.file.snapshot()).output.folder / "report.html"
        except HdmmError:  # a file that is being edited
            return None
        return page if page.is_file() else None

    def _refuse_two(self) -> None:
        if self.release is not None and self.release.running:
            raise ChangedError("A release is running already. Nothing else was done. Wait until it is done.")

    def _check_seen(self, seen: str) -> None:
        with self.file.locked(seen):
            pass

    def _payable(self, seen: str) -> tuple[Spec, Budget]:
        """The specification and the budget that pays for it; an error if a release would be refused."""
        with self.file.locked(seen) as found:
            spec = self.file.spec(found)
        account = budget_of(spec)
        if is_kept(spec):
            raise ChangedError("A release that is paid for waits to be published. Publish it first; it costs nothing.")
        check_payable(spec, account)
        return spec, account


def application(file: StudioFile, *, token: str, port: int) -> Guard:
    """The studio of a file, behind its guard."""
    studio = Studio(file)
    routes = [Route(path, _static(name)) for path, name in _FILES.items()]
    routes += [
        Route("/api/state", _answered(lambda _, __: studio.state())),
        Route("/api/pulse", _answered(lambda _, __: studio.pulse())),
        Route("/api/outlook", _answered(lambda _, __: studio.outlook())),
        Route("/api/step", _answered(lambda request, _: studio.step(request.query_params.get("value", "")))),
        Route("/api/try", _answered(lambda _, body: studio.try_edit(decoded(body, Edit))), methods=["POST"]),
        Route("/api/edit", _answered(lambda r, body: studio.edit(decoded(body, Edit), _seen(r))), methods=["POST"]),
        Route("/api/plan", _answered(lambda r, _: studio.start_plan(_seen(r))), methods=["POST"]),
        Route("/api/cancel", _answered(lambda _, __: studio.cancel_plan()), methods=["POST"]),
        Route("/api/offer", _answered(lambda r, _: studio.offer(_seen(r))), methods=["POST"]),
        Route(
            "/api/release",
            _answered(lambda _, body: studio.start_release(decoded(body, ReleaseRequest))),
            methods=["POST"],
        ),
        Route(
            "/api/resume",
            _answered(lambda r, body: studio.start_resume(decoded(body, ResumeRequest), _seen(r))),
            methods=["POST"],
        ),
        Route("/api/rows", _answered(lambda r, _: studio.start_rows(_seen(r))), methods=["POST"]),
        Route("/report/{key}", _report(studio)),
    ]
    return Guard(Starlette(routes=routes), token, port)


def _static(name: str) -> Callable[[Request], Awaitable[Response]]:
    content, kind = (_STATIC / name).read_bytes(), _TYPES[Path(name).suffix]

    async def answer(_: Request) -> Response:
        return Response(content, media_type=kind)

    return answer


def _report(studio: Studio) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        page = await run_in_threadpool(studio.report, request.path_params["key"])
        if page is None:
            return Response("There is no report at this address.", status_code=404, media_type="text/plain")
        return FileResponse(page, media_type="text/html", headers={"content-security-policy": _REPORT_POLICY})

    return answer


def _answered(act: Callable[[Request, bytes], Answer]) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint that does its work in a thread, and answers with JSON: the result, or the error in our words."""

    async def answer(request: Request) -> Response:
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > MOST_BODY:
                return _json({"error": "The request is too large. Nothing was done."}, 413)
        try:
            return _json(await run_in_threadpool(act, request, body), 200)
        except ChangedError as wrong:
            return _json({"error": str(wrong), "changed": True}, 409)
        except (BudgetError, LedgerError) as wrong:
            return _json({"error": str(wrong)}, 409)
        except HdmmError as wrong:
            return _json({"error": str(wrong)}, 400)
        except Exception as wrong:  # here, because Starlette would print it
            return _json({"error": unexpected(wrong)}, 500)

    return answer


def _json(value: Answer, code: int) -> Response:
    headers = {"etag": f'"{value["digest"]}"'} if "digest" in value else None
    return Response(as_json(value), code, headers=headers, media_type="application/json")


def _seen(request: Request) -> str:
    """What the page has seen of the file: the digest in If-Match."""
    return request.headers.get("if-match", "").strip('"')


def _declared(spec: Spec) -> Domain:
    """The attributes as they are declared, none merged."""
    return Domain(part for attribute in spec.domain.attributes for part in attribute.parts)


def _located(wrong: SqlError) -> dict[str, Any]:
    """The words of an SQL error without the picture in text, which the page draws itself."""
    first, *rest = str(wrong).split("\n")
    length = rest[-1].count("^") if rest else 1
    return {
        "error": first.partition(": ")[2] or first,
        "key": "sql",
        "line": wrong.line,
        "column": wrong.column,
        "length": max(length, 1),
    }


def _without_place(wrong: SpecError) -> str:
    """The words of an error about a file that is not saved, whose lines nobody sees."""
    first = str(wrong).split("\n")[0]
    return first.removeprefix(f"{wrong.file}, line {wrong.line}").removeprefix(f", {wrong.key}").removeprefix(": ")
