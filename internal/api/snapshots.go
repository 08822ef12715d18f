package api

import "holt"

// OneSnapshot names a snapshot in a path.
type OneSnapshot struct {
	Snapshot string `path:"snapshot" doc:"id, a name that only one snapshot has, or COMPUTER@SNAPSHOT"`
}

// Inputs of snapshots.
type (
	SnapshotsOf struct {
		Paging
		Computer string `query:"computer" maxLength:"64" doc:"only those of this computer, by name or id"`
	}
	SnapshotKeyed struct {
		OneSnapshot
		Keyed
	}
	SnapshotBody[T any] struct {
		OneSnapshot
		Keyed
		Body T
	}
	TwoSides struct {
		From string `query:"from" required:"true" maxLength:"128" is:"side" doc:"a computer, as it is now, or a snapshot, by name or id, or COMPUTER@SNAPSHOT"`
		To   string `query:"to" required:"true" maxLength:"128" is:"side" doc:"likewise"`
	}
)

var snapshotsTag = Tag("snapshots")

// Snapshots are computers as they were at one instant.
var (
	TakeSnapshot = Post[ComputerBody[holt.SnapshotSpec], holt.Snapshot](computerPath+"/snapshot", "snapshotComputer", "Take a snapshot of a running computer, which keeps running",
		Need{On: Computer, Change: true, Self: true}, Created, snapshotsTag, Doc("Memory, root disk and workspace are of the same instant, under one id. The snapshot stays until it is deleted."))
	ForkComputer = Post[ComputerBody[holt.ComputerForkSpec], holt.ForkedComputers](computerPath+"/fork", "forkComputer", "Fork a computer: a running one as it is now, a paused one, or one of its snapshots",
		Need{On: Content, Change: true, Self: true}, Created, snapshotsTag, Doc("Each fork continues with all processes of the computer, on a root disk and a workspace of its own, with an identity of its own. "+
			"The answer has an error for each fork that failed; nothing of that fork is left. The computer itself keeps running."))
	ListSnapshots = GetList[SnapshotsOf]("/v1/snapshots", "listSnapshots", "List snapshots, oldest first",
		Need{On: Computers, Ref: "Computer", Self: true}, func(s holt.Snapshot) string {
			return s.CreatedAt.UTC().Format("2006-01-02T15:04:05.000000000Z") + string(s.ID)
		}, Owner(func(s holt.Snapshot) holt.ComputerID { return s.ComputerID }))
	GetSnapshot    = Get[OneSnapshot, holt.Snapshot]("/v1/snapshots/{snapshot}", "getSnapshot", "Get a snapshot", Need{On: Snapshot})
	DeleteSnapshot = Delete[SnapshotKeyed, holt.SnapshotFreed]("/v1/snapshots/{snapshot}", "deleteSnapshot", "Delete a snapshot",
		Need{On: Snapshot, Change: true}, Doc("Its forks are kept, with the data that they share with it. A workspace that a restore replaced is deleted with its last snapshot. "+
			"Conflict while its computer is paused at it."))
	ForkSnapshot    = Post[SnapshotBody[holt.ComputerForkSpec], holt.ForkedComputers]("/v1/snapshots/{snapshot}/fork", "forkSnapshot", "Fork a snapshot", changeTenant, Created)
	RestoreSnapshot = Post[SnapshotBody[holt.SnapshotRestoreSpec], holt.RestoredComputer]("/v1/snapshots/{snapshot}/restore", "restoreSnapshot", "Restore a computer to one of its snapshots",
		Need{On: Snapshot, Change: true}, Doc("Memory, root disk, workspace and terminals become those of the snapshot, under the computer's own id, name and identity, and the computer runs (from a snapshot without memory it is "+
			"stopped). The present state becomes a snapshot first; restoring that one undoes the restore. Runs and terminals that began after the snapshot end; they continue if the previous state is restored. "+
			"Attachments and connections from outside end. The snapshot's workspace takes the name of the present workspace, which is kept under another name with the snapshots in it. A restore that fails leaves the computer as it "+
			"was; if a running computer cannot continue after a failure, it stays paused at the snapshot of its present state. To restore files only, use restoreWorkspace. Conflict while the workspace is mounted on the host."))
	DiffComputers = Get[TwoSides, holt.ComputerDiff]("/v1/diff", "diffComputers", "Compare two computers or snapshots",
		Need{On: Content}, snapshotsTag, Doc("The answer says what must change in from to make it to: files of the workspaces; files of the root disk where people put what no package has, by size, time, mode and owner; packages (of dpkg), processes and listening ports. "+
			"For a computer, all but the workspace is asked of its guest now. For a snapshot it was recorded before the snapshot was taken; for a snapshot of a fork, just after the fork. A side without a record says why."))
)
