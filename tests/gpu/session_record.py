"""Records sessions as they come over the socket, for tests/recordings/: small works, each with what
torch.profiler says of the same work in a run of its own. The format is in tests/recordings/README.md."""

import json

from session_rig import finish, merge_names, receive
from session_truth import compare_work

WORKS = ["eager", "train", "graph", "streams"]
ALONE = "pretrain"  # its times are to be those of a GPU that one process keeps busy
BYTES_MAX = 400_000


def write_recording(report, rig, name, session, truth):
    """The messages, and the truth beside them: by name of kernel as spelled by torch.profiler's count."""
    content = b"".join(session.messages)
    folder = rig.results / "recordings"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.session").write_bytes(content)
    ours = session.totals.as_json()
    ours["kernels"], ours["nodes"] = merge_names(ours["kernels"]), merge_names(ours["nodes"])
    profiler = {key: truth[key] for key in ("kernels", "nodes", "copies", "sets", "graph_launches")}
    profiler["kernels"], profiler["nodes"] = (merge_names(truth[key]) for key in ("kernels", "nodes"))
    (folder / f"{name}.json").write_text(json.dumps(
        {"comm": session.comm, "records": session.counted(), "losses": session.status.get("losses", {}),
         "session": ours, "profiler": profiler}, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    report.check(f"{name}.session is at most {BYTES_MAX} bytes", len(content) <= BYTES_MAX,
                 f"{len(content)} bytes, {len(session.messages)} messages, {session.counted()} records")


def check_record(report, rig):
    with receive(rig, record=True) as receiver:
        # All at once: only counts are compared.
        profiles = {work: rig.start(rig.work_command(work, "--small", "--profile")) for work in WORKS}
        runs = {work: rig.start(rig.work_command(work, "--small"), receiver.path) for work in WORKS}
        runs |= {f"pair_{number}": rig.start(rig.work_command("eager", "--small"), receiver.path)
                 for number in (1, 2)}
        truths = {work: finish(process).json() for work, process in profiles.items()}
        results = {name: finish(process).json() for name, process in runs.items()}
        truths[ALONE] = rig.run_work(ALONE, "--small", "--profile")
        results[ALONE] = rig.run_work(ALONE, "--small", socket=receiver.path)
        for name, result in results.items():
            session = receiver.wait_closed(result["pid"])
            if session is None or session.error:
                report.check(f"{name} is recorded", False, session.error if session else "no session")
                continue
            truth = truths.get(name, truths["eager"])
            compare_work(report, name, session.totals.as_json(), truth)
            write_recording(report, rig, name, session, truth)
