package api

import "holt"

// OneUpload names an upload in a path.
type OneUpload struct {
	Upload string `path:"upload" doc:"upload id"`
}

// Tus is the header of clients of the tus protocol.
type Tus struct {
	Resumable string `header:"Tus-Resumable" maxLength:"16" doc:"1.0.0, from clients of tus"`
}

// Inputs of uploads.
type (
	UploadStart struct {
		Keyed
		Tus
		Length   string `header:"Upload-Length" pattern:"^[0-9]{1,18}$" doc:"from clients of tus: bytes of the whole file"`
		Metadata string `header:"Upload-Metadata" maxLength:"16384" doc:"from clients of tus"`
		Body     *holt.UploadSpec
	}
	UploadTus struct {
		OneUpload
		Tus
	}
	UploadPiece struct {
		OneUpload
		Tus
		Offset   string `header:"Upload-Offset" required:"true" pattern:"^[0-9]{1,18}$" doc:"where the body begins, bytes from the file's start"`
		Checksum string `header:"Upload-Checksum" maxLength:"128" doc:"sha256 and the base64 of the body's SHA-256, a space between"`
	}
	UploadEnd struct {
		OneUpload
		Keyed
		Body *holt.UploadCommit
	}
	UploadKeyed struct {
		OneUpload
		Tus
		Keyed
	}
)

// Parse checks names, and cleans the path.
func (in *UploadStart) Parse() error {
	if in.Body == nil {
		return holt.Errorf(holt.InvalidArgument, "the body is missing: it names the file and its size")
	}
	for _, name := range []string{in.Body.Computer, in.Body.Workspace} {
		if name != "" {
			if err := ref(name); err != nil {
				return err
			}
		}
	}
	return cleanAll(&in.Body.Path)
}

// Uploads are files that are sent in pieces, over any number of connections. Their need is that of writing the file.
var (
	CreateUpload = Post[UploadStart, holt.Upload]("/v1/uploads", "createUpload", "Begin to send a file in pieces", Need{On: Content, Change: true}, Created,
		Doc("For large files and unreliable networks: create, send pieces with appendUpload, each at the offset where the last one ended, and commit. If a piece is cut off, the bytes that arrived are kept; "+
			"resumeUpload returns how many those are. An upload survives a restart of the daemon. It is removed a day after its last piece. A tenant may declare half of the free disk space, not counting its uploads. The protocol is tus 1.0.0 (tus.io) with creation, termination, expiration and checksum: its clients work "+
			"unmodified, with Upload-Length, and the fields computer or workspace, path, sha256, mode (octal), user and parents in Upload-Metadata in place of a body; their uploads are committed with the last byte."))
	ListUploads  = GetList[Paging]("/v1/uploads", "listUploads", "List the uploads that are open, and those of the last day", Need{On: Computers}, func(u holt.Upload) string { return string(u.ID) })
	GetUpload    = Get[OneUpload, holt.Upload]("/v1/uploads/{upload}", "getUpload", "Get an upload, without interrupting its sender", Need{On: Content})
	ResumeUpload = Head[UploadTus, holt.Upload]("/v1/uploads/{upload}", "resumeUpload", "Get the offset to resume from", Need{On: Content, Change: true}, Status(200),
		Doc("The answer is the header Upload-Offset. A call that is sending a piece at that time is ended: its connection is most likely dead."))
	AppendUpload = Patch[UploadPiece, holt.Upload]("/v1/uploads/{upload}", "appendUpload", "Send a piece of an upload", Need{On: Content, Change: true}, Status(204), Takes("the bytes", "application/offset+octet-stream"),
		Doc("The body is any number of bytes from Upload-Offset on, which must be the number of bytes that the upload has: conflict otherwise, and the detail has the right offset. Of a body that is cut off the bytes that arrived count, "+
			"unless Upload-Checksum is given: then it counts whole or not at all. Another call that is sending a piece at that time is ended."))
	CommitUpload = Post[UploadEnd, holt.Upload]("/v1/uploads/{upload}/commit", "commitUpload", "Commit an upload: write the file", Need{On: Content, Change: true},
		Doc("An existing file is overwritten as by writeFile. Conflict while bytes are missing, or if their SHA-256 is not the one that was given here or when the upload was created: nothing is written then, all that was sent stays, and the detail has the right value. "+
			"A commit continues when its caller hangs up; the upload shows for a day that it is done, and a repeat gets the same answer."))
	DeleteUpload = Delete[UploadKeyed, None]("/v1/uploads/{upload}", "deleteUpload", "Delete an upload; a written file is kept", Need{On: Content, Change: true})
)
