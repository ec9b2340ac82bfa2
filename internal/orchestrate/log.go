package orchestrate

import (
	"context"
	"fmt"
	"log/slog"

	"google.golang.org/protobuf/proto"
)

// EngineLog is the logger of dapr/durabletask-go. Its info lines, which come with each instance,
// are logged at debug level. Events hold user data: they are logged by their type only.
type EngineLog struct{ Logger *slog.Logger }

func (l EngineLog) write(level slog.Level, format string, v []any) {
	if !l.Logger.Enabled(context.Background(), level) {
		return
	}
	for i, a := range v {
		if m, ok := a.(proto.Message); ok {
			v[i] = m.ProtoReflect().Descriptor().Name()
		}
	}
	text := fmt.Sprint(v...)
	if format != "" {
		text = fmt.Sprintf(format, v...)
	}
	l.Logger.Log(context.Background(), level, "orchestration engine", slog.String("message", text))
}

func (l EngineLog) Debug(v ...any)            { l.write(slog.LevelDebug, "", v) }
func (l EngineLog) Debugf(f string, v ...any) { l.write(slog.LevelDebug, f, v) }
func (l EngineLog) Info(v ...any)             { l.write(slog.LevelDebug, "", v) }
func (l EngineLog) Infof(f string, v ...any)  { l.write(slog.LevelDebug, f, v) }
func (l EngineLog) Warn(v ...any)             { l.write(slog.LevelWarn, "", v) }
func (l EngineLog) Warnf(f string, v ...any)  { l.write(slog.LevelWarn, f, v) }
func (l EngineLog) Error(v ...any)            { l.write(slog.LevelError, "", v) }
func (l EngineLog) Errorf(f string, v ...any) { l.write(slog.LevelError, f, v) }
