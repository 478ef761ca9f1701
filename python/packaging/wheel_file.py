"""Writes a wheel: a zip of the files to install, with who they are and a hash of each."""
import base64
import hashlib
import os
import sys
import sysconfig
import zipfile


def _tag():
    """For which interpreters: this one's version, on this system."""
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    return f"{python}-{python}-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"


def _metadata(project):
    return (
        "Metadata-Version: 2.1\n"
        f"Name: {project['name']}\n"
        f"Version: {project['version']}\n"
        f"Summary: {project['description']}\n"
        f"Requires-Python: {project['requires-python']}\n"
    )


def _hash(content):
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def write(folder, project, files, notices):
    """`files`: where each goes -> what it is a copy of; `notices` go beside the metadata. Returns the wheel's name."""
    stem = f"{project['name']}-{project['version']}"
    name, info = f"{stem}-{_tag()}.whl", f"{stem}.dist-info"
    record = []
    with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED) as wheel:

        def add(place, content, mode=0o644):
            entry = zipfile.ZipInfo(place)  # with no time: the same sources make the same wheel
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100000 | mode) << 16
            wheel.writestr(entry, content)
            record.append(f"{place},{_hash(content)},{len(content)}")

        for place, file in files.items():
            add(place, file.read_bytes(), 0o755 if os.access(file, os.X_OK) else 0o644)
        for place, file in notices.items():
            add(f"{info}/{place}", file.read_bytes())
        add(f"{info}/METADATA", _metadata(project).encode())
        about = f"Wheel-Version: 1.0\nGenerator: holdfast\nRoot-Is-Purelib: false\nTag: {_tag()}\n"
        add(f"{info}/WHEEL", about.encode())
        record.append(f"{info}/RECORD,,")
        wheel.writestr(f"{info}/RECORD", "\n".join(record) + "\n")
    return name
