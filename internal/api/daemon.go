package api

import "holt"

// Inputs of calls about the daemon.
type (
	BootOf struct {
		Keyed
		Image string `path:"image" maxLength:"64" doc:"a template, or the digest of an image"`
		Body  *holt.Shape
	}
	Down struct {
		Keyed
		Body *holt.DownSpec
	}
	TicketFor struct{ Body holt.TicketSpec }
)

var ofDaemon = Tag("daemon")

// The daemon, its images, its archive, and tickets for it.
var (
	GetHealth  = Get[None, holt.Health]("/v1/health", "getHealth", "Get the daemon's health and version", Need{On: Content}, ofDaemon)
	GetDoctor  = Get[None, holt.Page[holt.Finding]]("/v1/doctor", "getDoctor", "Examine the daemon's host", Need{On: Host}, ofDaemon)
	ListImages = GetList[Paging]("/v1/images", "listImages", "List templates and whether they are built", Need{On: Computers}, func(i holt.Image) string { return i.Template + " " + i.Digest }, ofDaemon)
	BootImage  = Post[BootOf, holt.Image]("/v1/images/{image}/boot", "bootImage", "Boot an image, and keep the booted machine for new computers to start from", Need{On: Host, Change: true}, ofDaemon,
		Doc("Answers when everything is started and kept, at once if it is already. Unavailable says which service of the template did not start; "+
			"the image stays then, and its computers boot. Unsupported by an engine that cannot keep machines."))
	EndDaemon = Post[Down, holt.DownReport]("/v1/down", "endDaemon", "End the daemon, its mounts and (unless kept) its computers", Need{On: Host, Change: true}, ofDaemon,
		Doc("Answers when computers and mounts have ended; the daemon ends right after."))

	GetArchive     = Get[None, holt.Archive]("/v1/archive", "getArchive", "See what the archive of all workspaces holds", Need{On: Host})
	CollectArchive = Post[Keyed, holt.Collected]("/v1/archive/collect", "collectArchive", "Remove content that nothing refers to", Need{On: Host, Change: true},
		Doc("The daemon also does this by itself after some time. It never removes what a workspace, a checkpoint or a fork can reach."))
	CheckArchive = Post[None, holt.ArchiveReport]("/v1/archive/check", "checkArchive", "Read and verify everything in the archive", Need{On: Host},
		Doc("It changes nothing. The archive is clean when the report has no problems."))

	CreateTicket = Post[TicketFor, holt.Ticket]("/v1/tickets", "createTicket", "Make a ticket for one WebSocket", Need{On: Anyone}, ofDaemon, Created,
		Doc("A browser can send no Authorization header with a WebSocket. A holder of a token makes a ticket for one path, and gives it to the page, which offers it as a subprotocol. "+
			"The ticket is valid once, for 30 s, for that path with exactly the query that it has (the options of a terminal are part of it), and for a page of the origin that was named, which may differ from this server's. The WebSocket has the rights of the token that made the ticket, and ends with that token. "+
			"Another page, another path or query, or a second use is unauthenticated. A token may have 100 unused tickets, the tokens of a tenant 1,000 together."))
)

// Inputs of the audit log.
type (
	AuditOf struct {
		Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"most items in one answer"`
		Cursor string `query:"cursor" pattern:"^[0-9]{1,18}$" doc:"next of the previous page"`
		Tenant string `query:"tenant" maxLength:"63" doc:"only this one's"`
	}
	AuditQuestion struct {
		Body   holt.TableQuery
		Tenant string // set by authz: whose entries the question is about; "": all
	}
)

// The audit log. An admin sees all of it, others what their tenant did.
var (
	ListAudit = Get[AuditOf, holt.Page[holt.AuditEntry]]("/v1/audit", "listAudit", "List what was done, the newest first", Need{On: Content},
		Doc("Everything that changed something, reads of files, of output and of logs, attached terminals, connections, and refused calls: API, SSH, previews. "+
			"Calls that may take long, and calls that start a command or a terminal, also have an entry at their start, with the code begun. Nothing changes or removes an entry that is younger than "+
			"90 days and among the newest 1,000,000, or the newest 50,000 of its tenant; others are removed, the oldest first. "+
			"Calls without a valid token, and refusals of a token that makes too many calls, have one entry a minute for each address or token (more=N in ref: how many calls had none), and a few a minute together. "+
			"A token sees the entries of its tenant; an admin those of all, or of one."))
	QueryAudit = Post[AuditQuestion, holt.QueryResult]("/v1/audit/query", "queryAudit", "Query the audit log with SQL", Need{On: Content}, Audited(AuditAll),
		Doc("One SELECT about the table audit (seq, at, tenant, actor, token, name, door, remote, op, noun, ref, made, code, status, request, took_us), read-only and bounded as queryWorkspace is. "+
			"at is text, as 2026-06-09T12:30:00.000Z. A tenant's token queries the newest 50,000 entries of its tenant, an admin all. One query per tenant runs at a time and eight wait; further ones get too_many."))
)
