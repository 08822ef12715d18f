package schedule

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // for hosts without zone files

	"github.com/robfig/cron/v3"

	"holt"
)

// Timetable computes the due times of a cron expression in a time zone.
//
// The library parses the fields, and computes times by a clock without daylight saving time, since
// it skips the times in the missing hour of spring and repeats those in the repeated hour of
// autumn. Timetable handles changes of the clock as cron(8) does:
//
//   - An expression whose minute and hour are both fixed is a time of day. If the time does not exist on a
//     day, it is due when the clock has been set forward. If it exists twice, it is due the
//     first time.
//   - An expression whose minute or hour starts with * is an interval, which follows real
//     time: nothing is due in an hour that does not exist, and an hour that exists twice
//     has all due times twice.
type Timetable struct {
	spec  *cron.SpecSchedule
	zone  *time.Location
	fixed bool // a time of day, not an interval
}

// everyDay has the descriptors that can replace the five fields.
var everyDay = map[string]bool{"@hourly": true, "@daily": true, "@midnight": true, "@weekly": true, "@monthly": true, "@yearly": true, "@annually": true}

// starBit marks a field that starts with * in the library's bit sets.
const starBit = 1 << 63

const (
	mostCron = 200 // bytes
	mostZone = 64
)

// Parse reads a cron expression and the IANA name of a time zone; "" is UTC.
//
// Errors: InvalidArgument.
func Parse(expression, zone string) (*Timetable, error) {
	loc, err := parseZone(zone)
	if err != nil {
		return nil, err
	}
	fields := strings.Fields(expression)
	if len(expression) > mostCron || !onlyCron.MatchString(expression) {
		return nil, badCron(expression, "it is too long or has an invalid character")
	}
	fixed := true
	switch {
	case len(fields) == 1 && everyDay[strings.ToLower(fields[0])]:
		fields[0] = strings.ToLower(fields[0])
		fixed = fields[0] != "@hourly"
	case len(fields) == 5:
		fixed = fields[0][0] != '*' && fields[1][0] != '*'
		fields[4] = sundays(fields[4])
	case len(fields) == 6:
		return nil, badCron(expression, "it has six fields, and a field for seconds is not supported")
	default:
		return nil, badCron(expression, fmt.Sprintf("it has %d fields", len(fields)))
	}
	parsed, err := cron.ParseStandard(strings.Join(fields, " "))
	if err != nil {
		return nil, badCron(expression, err.Error())
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return nil, badCron(expression, "it is not a time of the calendar")
	}
	if len(fields) == 5 { // in crontab(5), */2 counts as a star
		spec.Dom |= star(fields[2])
		spec.Dow |= star(fields[4])
	}
	spec.Location = time.UTC // see next
	t := &Timetable{spec, loc, fixed}
	if t.Next(time.Now()).IsZero() {
		return nil, badCron(expression, "no date matches it")
	}
	return t, nil
}

// onlyCron matches the characters of an expression. It excludes extensions of the library
// such as TZ=….
var onlyCron = regexp.MustCompile(`^[0-9A-Za-z*/,\-?@ \t]+$`)

func star(field string) uint64 {
	if strings.HasPrefix(field, "*") || strings.HasPrefix(field, "?") {
		return starBit
	}
	return 0
}

func badCron(expression, why string) error {
	return holt.Errorf(holt.InvalidArgument, "invalid cron expression %q: %s", clip(expression), why).
		WithHint(`give five fields: minute, hour, day of the month, month, day of the week, such as "0 3 * * *" or "*/15 8-18 * * MON-FRI"; or @hourly, @daily, @weekly, @monthly, @yearly`)
}

// sundayRE matches parts of a day of the week that end with 7, which is Sunday in
// cron and invalid in the library.
var sundayRE = regexp.MustCompile(`^(?:([0-7])-)?7(?:/([0-9]{1,3}))?$`)

// sundays replaces 7 by 0.
func sundays(field string) string {
	parts := strings.Split(field, ",")
	for i, part := range parts {
		m := sundayRE.FindStringSubmatch(part)
		if m == nil {
			continue
		}
		first, step := 7, 1
		if m[1] != "" {
			first, _ = strconv.Atoi(m[1]) // a digit
		}
		if m[2] != "" {
			step, _ = strconv.Atoi(m[2])
		}
		if step == 0 {
			continue // the library returns the error
		}
		var days []string
		for day := first; day <= 7; day += step {
			days = append(days, strconv.Itoa(day%7))
		}
		parts[i] = strings.Join(days, ",")
	}
	return strings.Join(parts, ",")
}

func parseZone(name string) (*time.Location, error) {
	if name == "" {
		name = "UTC"
	}
	var zone *time.Location
	err := fmt.Errorf("invalid name")
	if len(name) <= mostZone && name != "Local" {
		zone, err = time.LoadLocation(name)
	}
	if err != nil {
		return nil, holt.Errorf(holt.InvalidArgument, "unknown time zone %q", clip(name)).
			WithHint("give an IANA name, such as Europe/Berlin, America/New_York or UTC")
	}
	return zone, nil
}

// Zone returns the name of the time zone.
func (t *Timetable) Zone() string { return t.zone.String() }

// Next returns the first due time after an instant, zero if there is none for years.
func (t *Timetable) Next(after time.Time) time.Time {
	at := after.In(t.zone)
	start, end := at.ZoneBounds() // between them the offset is constant; zero: unbounded
	for offset := offsetOf(at); ; offset = offsetOf(start) {
		if due := t.within(at.UTC().Add(offset), offset, start, end); !due.IsZero() {
			return due.In(t.zone)
		}
		if end.IsZero() || end.Sub(after) > mostYears {
			return time.Time{}
		}
		at = end.Add(-1) // continue at the end of this offset
		start, end = end.ZoneBounds()
	}
}

// mostYears is how far ahead the library searches.
const mostYears = 5 * 366 * 24 * time.Hour

// within returns the first due time after the wall clock time wall, up to the next change of
// the offset at end; zero if there is none.
func (t *Timetable) within(wall time.Time, offset time.Duration, start, end time.Time) time.Time {
	if t.fixed && !start.IsZero() {
		if again := offsetOf(start.Add(-1)) - offset; again > 0 { // the repeated hour
			if first := start.UTC().Add(offset + again - 1); wall.Before(first) {
				wall = first
			}
		}
	}
	next := t.spec.Next(wall)
	if next.IsZero() {
		return next
	}
	due := next.Add(-offset)
	if end.IsZero() || due.Before(end) {
		return due
	}
	if t.fixed && due.Before(end.Add(offsetOf(end)-offset)) { // in the missing hour
		return end
	}
	return time.Time{}
}

// offsetOf returns the offset of t's zone from UTC at t.
func offsetOf(t time.Time) time.Duration {
	_, seconds := t.Zone()
	return time.Duration(seconds) * time.Second
}

// Between calls yield with each due time in (after, until], until yield returns false.
func (t *Timetable) Between(after, until time.Time, yield func(time.Time) bool) {
	for due := t.Next(after); !due.IsZero() && !due.After(until); due = t.Next(due) {
		if !yield(due) {
			return
		}
	}
}

// clip shortens a value of a caller for logs and errors.
func clip(s string) string { return holt.Clip(s, 80) }
