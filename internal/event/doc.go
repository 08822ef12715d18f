// Package event keeps the newest events of nouns and sends them to followers.
//
// It is not the audit log, which records callers, and it is not a queue: events beyond the newest [holt.EventsKept]
// are deleted, read or not.
//
// Format: triggers of the control database ([Schema]) insert a row into the table event in the transaction
// of each change that makes an event. So an event exists exactly if its change does. [Store] reads new rows once
// after each commit and keeps the newest in memory ([Feed]). Followers read from there at their own pace and never
// block writers. A follower that is behind the oldest kept event gets a [holt.EventReset].
//
// Traps: INSERT OR REPLACE fires no DELETE triggers. An event whose tenant can no longer be determined has none, and is
// visible only to callers that are not confined to a tenant.
package event
