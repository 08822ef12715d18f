package api

import (
	"reflect"
	"strings"

	"holt"
)

// FileOwner is the computer, the workspace, the checkpoint of a workspace, or the artifact whose files a call is about: they have the
// same calls.
// The path of an endpoint says which of its fields are given.
type FileOwner struct {
	Computer   string `of:"computer" doc:"name or id"`
	Workspace  string `of:"workspace" doc:"name or id"`
	Checkpoint string `of:"checkpoint" doc:"name, or # and its number"`
	Artifact   string `of:"artifact" doc:"id, or BUCKET/NAME with the slash as %2F: the newest version"`
}

// Ref is a computer, a workspace, WORKSPACE@CHECKPOINT, or an artifact.
func (o FileOwner) Ref() string {
	if o.Checkpoint != "" {
		return holt.AtCheckpoint(o.Workspace, o.Checkpoint)
	}
	return o.Computer + o.Workspace + o.Artifact
}

// Of fills in what a request has: param returns its path parameters.
func (o *FileOwner) Of(param func(name string) string) {
	o.Computer, o.Workspace, o.Checkpoint, o.Artifact = param("computer"), param("workspace"), param("checkpoint"), param("artifact")
}

func (o FileOwner) parse() error {
	if o.Artifact != "" { // BUCKET/NAME can be any text
		return nil
	}
	return ref(o.Computer + o.Workspace)
}

// FileParams returns the name and the description of each path parameter that comes from a [FileOwner].
func FileParams(e *Endpoint) (params [][2]string) {
	if !hasField(e.Input, "FileOwner") {
		return nil
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[FileOwner]()) {
		if name := f.Tag.Get("of"); strings.Contains(e.Path, "{"+name+"}") {
			params = append(params, [2]string{name, f.Tag.Get("doc")})
		}
	}
	return params
}

// OneFile names a file.
type OneFile struct {
	FileOwner
	Path string `query:"path" required:"true" maxLength:"4096" doc:"absolute, inside the computer or from the workspace's top"`
}

// Preconditions have a call replace a file only if it is what the caller believes (RFC 9110, section 13).
type Preconditions struct {
	IfMatch     string `header:"If-Match" maxLength:"1024" doc:"replace only a file with one of these ETags; *: any existing file"`
	IfNoneMatch string `header:"If-None-Match" maxLength:"1024" doc:"*: only if there is no such file; or not a file with one of these ETags"`
}

// Inputs of calls about files.
type (
	FilesOf struct {
		OneFile
		Paging
	}
	FileRemoval struct {
		OneFile
		Keyed
		Recursive bool `query:"recursive" doc:"also a directory with everything in it"`
	}
	MakeDir struct {
		FileOwner
		Keyed
		Body holt.MkdirSpec
	}
	MakeLink struct {
		FileOwner
		Keyed
		Body holt.SymlinkSpec
	}
	FileRename struct {
		FileOwner
		Keyed
		Body holt.RenameSpec
	}
	FileRead struct {
		OneFile
		Range       string `header:"Range" maxLength:"128" doc:"bytes=FIRST-LAST, bytes=FIRST- or bytes=-LENGTH"`
		IfRange     string `header:"If-Range" maxLength:"128" doc:"an ETag: the range counts only while the file has it"`
		IfNoneMatch string `header:"If-None-Match" maxLength:"1024" doc:"ETags of what the caller has"`
	}
	FileWrite struct {
		OneFile
		Preconditions
		Mode    string `query:"mode" pattern:"^[0-7]{1,4}$" doc:"permission bits, octal; default: an existing file keeps its own, a new one gets new_mode"`
		NewMode string `query:"new_mode" pattern:"^[0-7]{1,4}$" doc:"permission bits of the source file, octal: a new file gets them less 022; default: 0644"`
		User    string `query:"user" maxLength:"32" doc:"Linux user who will own it; default: an existing file keeps its owner, a new one gets the owner of its directory, or agent where everybody may make files, as in /tmp"`
		Parents bool   `query:"parents" doc:"create missing directories above it"`
	}
	FileUntar struct {
		OneFile
		User string `query:"user" maxLength:"32" doc:"Linux user who will own them; default: an existing file keeps its owner, a new one gets the owner of its directory"`
	}
)

// Parse cleans the path, and so do the other two.
func (in *MakeDir) Parse() error    { return cleanAll(&in.Body.Path) }
func (in *MakeLink) Parse() error   { return cleanAll(&in.Body.Path) }
func (in *FileRename) Parse() error { return cleanAll(&in.Body.From, &in.Body.To) }

// FileCalls are the calls about the files of one kind of owner. Those of a checkpoint have only those that read.
type FileCalls struct {
	List    Call[FilesOf, holt.Page[holt.FileInfo]]
	Stat    Call[OneFile, holt.FileInfo]
	Read    Call[FileRead, Stream]
	Tar     Call[OneFile, Stream]
	Remove  Call[FileRemoval, None]
	Mkdir   Call[MakeDir, holt.FileInfo]
	Symlink Call[MakeLink, holt.FileInfo]
	Rename  Call[FileRename, None]
	Write   Call[FileWrite, holt.FileInfo]
	Untar   Call[FileUntar, holt.TarReport]
}

// Files are the files inside computers, of workspaces, of workspaces at checkpoints, and of artifacts that are directories.
var (
	ComputerFiles   = writable(inComputer, "/v1/computers/{computer}/files", "")
	WorkspaceFiles  = writable(inWorkspace, "/v1/workspaces/{workspace}/files", "Workspace")
	CheckpointFiles = readable(inWorkspace, "/v1/workspaces/{workspace}/checkpoints/{checkpoint}/files", "Checkpoint")
	ArtifactFiles   = readable(inArtifact, "/v1/artifacts/{artifact}/files", "Artifact")
)

// fileNeed is the need of a call. path and user are fields of its input; without a path authz has a rule.
type fileNeed func(path, user string, change bool) Need

// inComputer: the agent of a computer reads and writes files as root.
func inComputer(_, _ string, change bool) Need {
	return Need{On: Computer, User: "=root", Change: change}
}

func inWorkspace(path, user string, change bool) Need {
	if path == "" {
		return Need{On: Content, Change: change}
	}
	return Need{On: Path, Path: path, User: user, Change: change}
}

func inArtifact(_, _ string, _ bool) Need { return Need{On: Content} }

// readable declares the calls that read; noun is part of their ids.
func readable(need fileNeed, at, noun string) (f FileCalls) {
	look, tag := need("Path", "", false), Tag("files")
	f.List = Get[FilesOf, holt.Page[holt.FileInfo]](at, "list"+noun+"Files", "List a directory", look, tag,
		Doc("The entries of one page are in the order of their names. Pages of a workspace, or of a directory in a stopped computer, follow in that order too. "+
			"Pages of a directory in a running computer follow in the order of that directory. An entry that exists from the first page to the last is listed once, whatever changes meanwhile. "+
			"A cursor is valid for one directory; 409 if the computer was stopped or started since."))
	f.Stat = Get[OneFile, holt.FileInfo](at+"/stat", "stat"+noun+"File", "Describe a file", look, tag)
	f.Read = Get[FileRead, Stream](at+"/content", "read"+noun+"File", "Read a file, or a range of it", look, tag, Audited(AuditAll),
		Bytes("application/octet-stream", "the file's bytes"), Also(206, "the range's bytes"), Also(304, "the file has the ETag that was given"),
		Doc("Takes one byte range (RFC 9110). The whole file is sent if several ranges are asked for, if the path ends with a symbolic link, or if the file has no size (as in /proc). "+
			"The ETag changes with the file's size and modification time. If-None-Match with that ETag is answered with 304 until the file changes. HEAD answers with the headers alone."))
	f.Tar = Get[OneFile, Stream](at+"/tar", "tar"+noun+"Files", "Get a directory as a tar stream", look, tag, Audited(AuditAll), Bytes("application/x-tar", "a tar stream"),
		Doc("Everything below it, with relative names, modes, times and numeric owners; symbolic links as links. Sockets, pipes and devices are left out. "+
			"The stream is not a snapshot: changes made meanwhile may be in it. A stream without its end (two empty blocks) was cut off."))
	return f
}

// writable declares the calls that change something as well.
func writable(need fileNeed, at, noun string) FileCalls {
	f, tag := readable(need, at, noun), Tag("files")
	f.Remove = Delete[FileRemoval, None](at, "remove"+noun+"File", "Remove a file or a directory", need("Path", "", true), tag)
	f.Mkdir = Post[MakeDir, holt.FileInfo](at+"/mkdir", "make"+noun+"Directory", "Make a directory", need("Body.Path", "Body.User", true), tag, Created)
	f.Symlink = Post[MakeLink, holt.FileInfo](at+"/symlink", "link"+noun+"File", "Make a symbolic link; an existing file or link is replaced", need("", "", true), tag, Created)
	f.Rename = Post[FileRename, None](at+"/rename", "rename"+noun+"File", "Move a file; an existing one at the new path is replaced", need("", "", true), tag)
	f.Write = Put[FileWrite, holt.FileInfo](at+"/content", "write"+noun+"File", "Replace the content of a file", need("Path", "User", true), tag, Takes("the file's bytes"),
		Doc("The body is the new content. It is written once all of it has arrived; a call that is cut off changes nothing. "+
			"A new file appears whole. An existing file is overwritten: it keeps its inode, owner, group, mode, extended attributes and hard links, and a program that reads it at that moment may see a part of both contents. Long runs of zeros become holes. "+
			"If-Match with the ETag that the file had when it was read makes concurrent edits safe: of several callers who replace the same content one succeeds, and the others get 412, code conflict."))
	f.Untar = Put[FileUntar, holt.TarReport](at+"/tar", "untar"+noun+"Files", "Unpack a tar stream into a directory", need("Path", "User", true), tag, Takes("a tar stream", "application/x-tar"),
		Doc("Directories, files and symbolic links. An existing file is overwritten as by writeFile and keeps its owner and mode; a new one gets the mode that it has in the stream, less 022. Existing directories stay as they are, missing ones are made. "+
			"Nothing is written outside of the directory: an entry whose name is absolute or has .. in it is refused, and so is one that a symbolic link would lead elsewhere. Devices, pipes, hard links and sparse files are left out, and named. "+
			"If it fails, the entries before stay; the error's detail says how much was written. The stream is not compressed."))
	return f
}
