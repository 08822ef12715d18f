// Package event keeps the last things that happened to nouns, and tells them to whoever follows.
//
// It is not the audit log, which says who asked for what and forgets nothing, and no queue: what is
// not read in time is forgotten ([holt.EventsKept]).
//
// Form: triggers of the control database ([Schema]) write a row for each change of a row that
// somebody may want to know of, in the transaction that makes the change. So an event is there exactly
// if the change is, whoever made it, and both survive the daemon. [Store] reads new rows once, after
// each commit, and keeps the last of them in memory ([Feed]), where any number of followers
// read at their own pace: nobody is waited for, and a follower that falls behind what is kept is told so
// ([holt.EventReset]).
//
// Traps: INSERT OR REPLACE fires no DELETE triggers. A row whose owner cannot be told any more
// has no tenant, and is told to nobody that is confined to one.
package event
