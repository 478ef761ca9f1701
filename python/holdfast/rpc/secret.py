"""Who may call this worker: whoever knows the job's secret, since a pickle can run any code."""
import ipaddress
import os
import pathlib
import secrets

from .. import _core


def _users_file() -> str:
    """A file with a secret that only this user can read, made when it is first needed: all jobs of this user on this
    machine share it, so that programs need not know of it."""
    state = os.environ.get("XDG_STATE_HOME") or pathlib.Path.home() / ".local" / "state"
    file = pathlib.Path(state) / "holdfast" / "secret"
    if not file.exists():
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft = file.with_name(f"secret.{os.getpid()}.{secrets.token_hex(4)}")
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
                opened.write(secrets.token_hex(32) + "\n")
            try:
                os.link(draft, file)  # whoever comes first; nobody ever reads half of one
            except FileExistsError:
                pass
            finally:
                draft.unlink()
        except OSError as error:
            raise RuntimeError(
                f"cannot make a secret for calls between your workers ({error}): set HOLDFAST_SECRET_FILE to a file "
                "that only you can read, the same for all workers"
            ) from error
    return str(file)


def secret_file(bind: str) -> str:
    """The file with the secret of a job whose workers listen on that address; "" if only the environment knows. The
    user's own is for this machine: on another one it would be another."""
    return _users_file() if ipaddress.ip_address(bind).is_loopback else ""


def pickle_allowed(file: str, launched: bool) -> bool:
    """Whether this worker decodes pickles. HOLDFAST_PICKLE=0: never. 1: from anybody who can connect."""
    wish = os.environ.get("HOLDFAST_PICKLE", "")
    if wish == "0" and not launched:
        raise RuntimeError("HOLDFAST_PICKLE=0 is for jobs of `holdfast run`: other workers agree by pickled calls when to end")
    if wish in ("0", "1"):
        return wish == "1"
    if wish:
        raise RuntimeError(f"HOLDFAST_PICKLE is {wish!r}; it may be 0 or 1")
    if not _core.is_protected(file):
        raise RuntimeError(
            "this job has neither a secret nor certificates, so anybody who can connect could run any code here: give all "
            "workers the same HOLDFAST_SECRET_FILE, or start them with `holdfast run`; or set HOLDFAST_PICKLE to 1, to take "
            "calls of Python functions from anybody"
        )
    return True
