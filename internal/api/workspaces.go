package api

import "holt"

// OneWorkspace names a workspace in a path.
type OneWorkspace struct {
	Workspace string `path:"workspace" doc:"name or id"`
}

// WorkspaceBody is the input of a call about a workspace that has a body, and may be repeated.
type WorkspaceBody[T any] struct {
	OneWorkspace
	Keyed
	Body T
}

// Unasked is what an import or an export leaves out unless it is asked for.
type Unasked struct {
	Devices bool `query:"devices" doc:"device nodes too"`
	SetID   bool `query:"set_id" doc:"keep set-user-id and set-group-id bits"`
}

// Inputs of workspaces.
type (
	WorkspaceKeyed struct {
		OneWorkspace
		Keyed
	}
	WorkspaceQuery struct {
		Workspace string `path:"workspace" is:"point" doc:"name or id"`
		Body      holt.QuerySpec
	}
	WorkspaceQuota struct {
		OneWorkspace
		Body holt.Quota
	}
	WorkspaceMerge struct{ WorkspaceBody[holt.MergeSpec] }
	WorkspaceTag   struct{ WorkspaceBody[holt.TagSpec] }
	WorkspaceMount struct{ WorkspaceBody[holt.MountSpec] }
	Unmount        struct {
		Keyed
		Dir string `query:"dir" required:"true" maxLength:"4096" doc:"absolute path on the daemon's host"`
	}
	WorkspaceImport struct {
		OneWorkspace
		Unasked
		Path  string `query:"path" default:"/" maxLength:"4096" doc:"directory that the files are put into; it is made if it does not exist"`
		Owner bool   `query:"owner" doc:"files belong to the numbers they had; otherwise to the user agent"`
	}
	WorkspaceExport struct {
		OneWorkspace
		Unasked
		Path string `query:"path" default:"/" maxLength:"4096" doc:"the directory to send"`
		At   string `query:"at" maxLength:"255" doc:"the checkpoint to send; default: the present"`
	}
	UsageOf struct {
		OneWorkspace
		Paging
		Path  string `query:"path" default:"/" maxLength:"4096" doc:"absolute, from the workspace's top"`
		Depth int    `query:"depth" minimum:"0" maximum:"64" doc:"also the directories below it, down to so many levels"`
	}
	TagsOf struct {
		OneWorkspace
		Paging
		Path string `query:"path" required:"true" maxLength:"4096" doc:"absolute, from the workspace's top"`
	}
)

// Parse checks the name of the other workspace, and cleans paths.
func (in *WorkspaceMerge) Parse() error {
	if err := ref(in.Body.From); err != nil {
		return err
	}
	return cleanAll(&in.Body.Paths, &in.Body.Ours, &in.Body.Theirs)
}

// Parse cleans the path.
func (in *WorkspaceTag) Parse() error { return cleanAll(&in.Body.Path) }

// Parse cleans the path.
func (in *WorkspaceMount) Parse() error { return cleanAll(&in.Body.Dir) }

var (
	lookWorkspace   = Need{On: Workspace}
	changeWorkspace = Need{On: Workspace, Change: true}
	inWorkspaces    = Tag("workspaces")
)

// Workspaces are the durable file systems.
var (
	CreateWorkspace = Post[Body[holt.WorkspaceSpec], holt.Workspace]("/v1/workspaces", "createWorkspace", "Create an empty workspace", Need{On: Tenant, Change: true}, Created)
	ListWorkspaces  = GetList[Paging]("/v1/workspaces", "listWorkspaces", "List workspaces by name", Need{On: Computers}, func(w holt.Workspace) string { return w.Name })
	GetWorkspace    = Get[OneWorkspace, holt.Workspace]("/v1/workspaces/{workspace}", "getWorkspace", "Get a workspace", Need{On: Content})
	UpdateWorkspace = Patch[WorkspaceBody[holt.WorkspaceUpdate], holt.Workspace]("/v1/workspaces/{workspace}", "updateWorkspace", "Rename a workspace", changeWorkspace,
		Doc("Its id stays. The old name is free at once."))
	DeleteWorkspace = Delete[WorkspaceKeyed, None]("/v1/workspaces/{workspace}", "deleteWorkspace", "Delete a workspace with everything in it", changeWorkspace)
	CheckWorkspace  = Post[OneWorkspace, holt.CheckReport]("/v1/workspaces/{workspace}/check", "checkWorkspace", "Verify a workspace's metadata and checksums", lookWorkspace,
		Doc("It changes nothing. A workspace is clean when the report has no problems."))
	QueryWorkspace = Post[WorkspaceQuery, holt.QueryResult]("/v1/workspaces/{workspace}/query", "queryWorkspace", "Query files with SQL", Need{On: Content}, Audited(AuditAll),
		Doc("Read-only SQLite over the workspace as it is now, or at a checkpoint; the view files(path, dir, name, kind, size, mode, mtime, ctime, writer, run, …) is for people. "+
			"tags(path, name, value) are the attributes user.*, files_at and tags_at those of every checkpoint (by a column checkpoint), checkpoints the list, and changes('FROM', 'TO') is what a diff says. "+
			"NAME@CHECKPOINT for the workspace means the workspace at that checkpoint. With also or forks it is over several workspaces, and each of these has a column workspace. A query reads one state of each. "+
			"Of each tenant two queries run at once and eight more wait; further ones get too_many."))
	ForkWorkspace = Post[WorkspaceBody[holt.ForkSpec], holt.Forked]("/v1/workspaces/{workspace}/fork", "forkWorkspace", "Fork a workspace", Need{On: Tenant, Change: true}, Created,
		Doc("Each fork is a workspace of its own with everything that was there at the checkpoint, its history too. No content is copied. "+
			"If some forks fail, the answer has the error of each; nothing of them is left."))
	MergeWorkspace = Post[WorkspaceMerge, holt.MergeReport]("/v1/workspaces/{workspace}/merge", "mergeWorkspace", "Bring the changes of a fork to a workspace", Need{On: Content, Change: true},
		Doc("A three-way merge since both were the same, or since the last merge. What both changed differently is not changed and reported as a conflict; "+
			"the next merge looks at it again, unless it is settled for one side with ours or theirs. The present is checkpointed first; the other workspace is not changed."))
	MountWorkspace = Post[WorkspaceMount, holt.Mount]("/v1/workspaces/{workspace}/mounts", "mountWorkspace", "Mount a workspace on the daemon's host", Need{On: Admin, Change: true}, Created)
	ListMounts     = GetList[Paging]("/v1/mounts", "listMounts", "List mounts on the daemon's host", Need{On: Admin}, func(m holt.HostMount) string { return m.Dir }, inWorkspaces,
		Doc("Those of all tenants, by directory."))
	UnmountWorkspace = Delete[Unmount, None]("/v1/mounts", "unmountWorkspace", "End a mount on the daemon's host", Need{On: Admin, Change: true}, inWorkspaces)
)

// Calls about many files of a workspace at once.
var (
	ImportWorkspace = Put[WorkspaceImport, holt.TransferReport]("/v1/workspaces/{workspace}/import", "importWorkspace", "Put a tree of files into a workspace", Need{On: Content, Change: true}, Takes("a parcel"),
		Doc("The body is a parcel: a stream of files with modes, times, links, attributes and holes. A file replaces an existing file of its name, directories are joined. "+
			"When it answers, everything survives power loss. If it fails, what was written stays; the error's detail says how much that is."))
	ExportWorkspace = Get[WorkspaceExport, Stream]("/v1/workspaces/{workspace}/export", "exportWorkspace", "Get a tree of files out of a workspace", lookWorkspace, Audited(AuditAll), Bytes(ParcelType, "a parcel"),
		Doc("The answer is a parcel, as importWorkspace takes it. A parcel without its end was cut off. An export of the present is not a snapshot: changes made meanwhile may be in it."))
	UsageOfWorkspace = GetList[UsageOf]("/v1/workspaces/{workspace}/usage", "usageOfWorkspace", "Get sizes of directories", lookWorkspace, func(u holt.Usage) string { return string(u.Path) })
	SetQuota         = Put[WorkspaceQuota, holt.Workspace]("/v1/workspaces/{workspace}/quota", "setQuota", "Set the quota of a workspace", Need{On: Tenant, Change: true},
		Doc("Content above a quota stays, but cannot grow. Programs get EDQUOT, and df shows the quota."))
	ListTags = GetList[TagsOf]("/v1/workspaces/{workspace}/tags", "listTags", "List the tags of a file by name", Need{On: Path, Path: "Path"}, func(t holt.Tag) string { return string(t.Name) },
		Doc("A tag is a user attribute (user.NAME). The view tags of queryWorkspace has those of all files."))
	TagFile = Post[WorkspaceTag, []holt.Tag]("/v1/workspaces/{workspace}/tags", "tagFile", "Set and remove tags of a file", Need{On: Path, Path: "Body.Path", Change: true})
)
