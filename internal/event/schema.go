package event

import (
	"fmt"
	"strings"

	"holt"
)

// Schema makes the table of this package in the control database, and the triggers that fill it. The tables of the
// triggers must exist.
var Schema = table + strings.Join(triggers, "")

const table = `
CREATE TABLE event (
	seq           INTEGER PRIMARY KEY AUTOINCREMENT, -- never used again
	at            INTEGER NOT NULL,                  -- milliseconds since 1970
	kind          TEXT NOT NULL,
	tenant        TEXT NOT NULL,                     -- '' if unknown
	computer      TEXT NOT NULL DEFAULT '',
	computer_name TEXT NOT NULL DEFAULT '',
	ref           TEXT NOT NULL DEFAULT '',
	name          TEXT NOT NULL DEFAULT '',
	detail        TEXT NOT NULL DEFAULT '{}'         -- JSON
);
`

// row is the event that a trigger inserts.
type row struct {
	kind     string // each field is an SQL expression
	tenant   string
	computer string // id
	called   string // name of the computer
	ref      string
	name     string
	detail   string
}

func insert(r row) string {
	or := func(s string) string {
		if s == "" {
			return "''"
		}
		return s
	}
	if r.detail == "" {
		r.detail = "'{}'"
	}
	return fmt.Sprintf(`INSERT INTO event (at, kind, tenant, computer, computer_name, ref, name, detail) VALUES (CAST(unixepoch('subsec') * 1000 AS INTEGER), %s, coalesce(%s, ''), %s, coalesce(%s, ''), %s, %s, %s);`,
		r.kind, r.tenant, or(r.computer), or(r.called), or(r.ref), or(r.name), r.detail)
}

func trigger(name, when string, r row) string {
	return fmt.Sprintf("CREATE TRIGGER event_%s %s BEGIN %s END;\n", name, when, insert(r))
}

// tenantOf and nameOf return SQL for the tenant and the name of the computer with the id x.
func tenantOf(x string) string { return fmt.Sprintf(`(SELECT tenant FROM computer WHERE id = %s)`, x) }
func nameOf(x string) string   { return fmt.Sprintf(`(SELECT name FROM computer WHERE id = %s)`, x) }

// tenantWas returns SQL for the tenant in the last event about ref, for objects whose computer is deleted.
func tenantWas(ref string) string {
	return fmt.Sprintf(`(SELECT tenant FROM event WHERE ref = %s ORDER BY seq DESC LIMIT 1)`, ref)
}

// artifact is an event of the row x of an artifact.
func artifact(kind, x, detail string) row {
	of := func(column string) string {
		return fmt.Sprintf(`(SELECT %s FROM bucket WHERE id = %s.bucket)`, column, x)
	}
	return row{kind, of("tenant"), ``, ``, x + `.id`, of("name") + ` || '/' || ` + x + `.name`, detail}
}

var triggers = []string{
	// Old events are deleted in small steps.
	fmt.Sprintf("CREATE TRIGGER event_kept AFTER INSERT ON event WHEN new.seq %% 16 = 0 BEGIN DELETE FROM event WHERE seq <= new.seq - %d; END;\n", holt.EventsKept),

	trigger("computer_created", `AFTER INSERT ON computer`,
		row{`'computer.created'`, `new.tenant`, `new.id`, `new.name`, `new.id`, `new.name`, `json_object('state', new.state)`}),
	trigger("computer_state", `AFTER UPDATE OF state ON computer WHEN new.state <> old.state`,
		row{`'computer.state'`, `new.tenant`, `new.id`, `new.name`, `new.id`, `new.name`, `json_object('state', new.state, 'was', old.state, 'reason', substr(new.reason, 1, 200))`}),
	trigger("computer_changed", `AFTER UPDATE OF name, cpus, memory_mb, disk_mb ON computer WHEN (new.name, new.cpus, new.memory_mb, new.disk_mb) <> (old.name, old.cpus, old.memory_mb, old.disk_mb)`,
		row{`'computer.changed'`, `new.tenant`, `new.id`, `new.name`, `new.id`, `new.name`, `json_object('state', new.state)`}),
	trigger("computer_deleted", `AFTER DELETE ON computer`,
		row{`'computer.deleted'`, `old.tenant`, `old.id`, `old.name`, `old.id`, `old.name`, ``}),

	trigger("run_started", `AFTER INSERT ON run`,
		row{`'run.started'`, tenantOf("new.computer"), `new.computer`, nameOf("new.computer"), `new.id`, ``, `json_object('state', new.state)`}),
	trigger("run_ended", `AFTER UPDATE OF state ON run WHEN new.state <> old.state`,
		row{`CASE new.state WHEN 'running' THEN 'run.started' ELSE 'run.ended' END`, tenantOf("new.computer"), `new.computer`, nameOf("new.computer"), `new.id`, ``,
			`json_object('state', new.state, 'was', old.state, 'exit_code', iif(new.state = 'exited', new.exit_code, NULL))`}),
	// The guest refused the run, which never began.
	trigger("run_refused", `AFTER DELETE ON run WHEN old.state = 'running' AND EXISTS (SELECT 1 FROM computer WHERE id = old.computer)`,
		row{`'run.ended'`, tenantOf("old.computer"), `old.computer`, nameOf("old.computer"), `old.id`, ``, `json_object('state', 'lost', 'was', old.state)`}),

	trigger("terminal_opened", `AFTER INSERT ON terminal`,
		row{`'terminal.opened'`, tenantOf("new.computer"), `new.computer`, nameOf("new.computer"), `new.id`, `new.name`, `json_object('state', new.state)`}),
	trigger("terminal_ended", `AFTER UPDATE OF state ON terminal WHEN new.state <> old.state`,
		row{`CASE new.state WHEN 'running' THEN 'terminal.opened' ELSE 'terminal.ended' END`, tenantOf("new.computer"), `new.computer`, nameOf("new.computer"), `new.id`, `new.name`,
			`json_object('state', new.state, 'was', old.state, 'exit_code', iif(new.state = 'exited', new.exit_code, NULL))`}),

	trigger("snapshot_created", `AFTER UPDATE OF state ON snapshot WHEN new.state = 'ready' AND old.state <> 'ready'`,
		row{`'snapshot.created'`, tenantOf("new.computer"), `new.computer`, nameOf("new.computer"), `new.id`, `new.name`, ``}),
	trigger("snapshot_deleted", `AFTER DELETE ON snapshot WHEN old.state <> 'creating'`,
		row{`'snapshot.deleted'`, `coalesce(` + tenantOf("old.computer") + `, ` + tenantWas("old.id") + `, ` + tenantWas("old.computer") + `)`, `old.computer`, nameOf("old.computer"), `old.id`, `old.name`, ``}),

	trigger("workspace_created", `AFTER UPDATE OF state ON workspace WHEN new.state = 'ready' AND old.state = 'creating'`,
		row{`'workspace.created'`, `new.tenant`, ``, ``, `new.id`, `new.name`, ``}),
	trigger("workspace_changed", `AFTER UPDATE OF name ON workspace WHEN new.name <> old.name AND new.state = 'ready'`,
		row{`'workspace.changed'`, `new.tenant`, ``, ``, `new.id`, `new.name`, ``}),
	trigger("workspace_deleted", `AFTER DELETE ON workspace WHEN old.state <> 'creating'`,
		row{`'workspace.deleted'`, `old.tenant`, ``, ``, `old.id`, `old.name`, ``}),

	trigger("job_created", `AFTER INSERT ON job`,
		row{`'job.created'`, `json_extract(new.record, '$.tenant')`, ``, ``, `new.id`, ``, `json_object('state', json_extract(new.record, '$.state'))`}),
	trigger("job_state", `AFTER UPDATE OF record ON job WHEN json_extract(new.record, '$.state') <> json_extract(old.record, '$.state')`,
		row{`'job.state'`, `json_extract(new.record, '$.tenant')`, `coalesce(json_extract(new.record, '$.computer_id'), '')`, ``, `new.id`, ``,
			`json_object('state', json_extract(new.record, '$.state'), 'was', json_extract(old.record, '$.state'), 'reason', substr(coalesce(json_extract(new.record, '$.reason'), ''), 1, 200), 'run', coalesce(json_extract(new.record, '$.run_id'), ''))`}),
	trigger("job_deleted", `AFTER DELETE ON job`,
		row{`'job.deleted'`, `json_extract(old.record, '$.tenant')`, ``, ``, `old.id`, ``, ``}),

	trigger("artifact_created", `AFTER UPDATE OF state ON artifact WHEN old.state IN ('writing', 'uploading') AND new.state IN ('storing', 'ready')`, artifact(`'artifact.created'`, "new", ``)),
	trigger("artifact_deleted", `AFTER UPDATE OF state ON artifact WHEN old.state IN ('storing', 'ready') AND new.state = 'deleting'`, artifact(`'artifact.deleted'`, "new", ``)),
	trigger("artifact_refused", `AFTER UPDATE OF state ON artifact WHEN old.state IN ('writing', 'uploading') AND new.state = 'deleting' AND new.refused <> ''`,
		artifact(`'artifact.refused'`, "new", `json_object('reason', substr(new.refused, 1, 200))`)),

	// A change of a schedule is written as INSERT OR REPLACE.
	trigger("schedule_put", `BEFORE INSERT ON schedule`,
		row{`CASE WHEN EXISTS (SELECT 1 FROM schedule WHERE id = new.id) THEN 'schedule.changed' ELSE 'schedule.created' END`, tenantOf("new.computer"), `new.computer`, nameOf("new.computer"), `new.id`, `new.name`, ``}),
	trigger("schedule_deleted", `AFTER DELETE ON schedule`,
		row{`'schedule.deleted'`, `coalesce(` + tenantOf("old.computer") + `, ` + tenantWas("old.computer") + `)`, `old.computer`, nameOf("old.computer"), `old.id`, `old.name`, ``}),
	trigger("firing_created", `AFTER INSERT ON firing`, firing("NULL")),
	trigger("firing_state", `AFTER UPDATE OF state ON firing WHEN new.state <> old.state`, firing("old.state")),
}

func firing(was string) row {
	return row{`'firing.state'`, tenantOf("new.computer"), `new.computer`, nameOf("new.computer"), `new.schedule`, `coalesce((SELECT name FROM schedule WHERE id = new.schedule), '')`,
		`json_object('state', new.state, 'was', ` + was + `, 'reason', substr(new.reason, 1, 200), 'run', new.run, 'exit_code', iif(new.state = 'exited', new.exit_code, NULL))`}
}

const insertCheckpoint = `INSERT INTO event (at, kind, tenant, computer, computer_name, ref, name, detail)
	SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER), ?1, w.tenant, coalesce(c.id, ''), coalesce(c.name, ''), w.id, ?3, ?4
	FROM workspace w LEFT JOIN computer c ON c.workspace = w.id WHERE w.id = ?2`
