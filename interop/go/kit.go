package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// ctx is what one scenario works with: names nobody else uses, and clients that are closed at its end.
// Every client has an instance name of its own, so that two members of a group can live in one process.
type ctx struct {
	namesrv string
	name    string
	note    string
	args    map[string]string
	closers []func()
}

var instances atomic.Int64

func instance() string { return fmt.Sprintf("go%d-%d", instances.Add(1), os.Getpid()) }

func (c *ctx) topic() string { return c.args["prefix"] + "-" + c.name }

func (c *ctx) group(suffix string) string { return "g-" + c.topic() + suffix }

func (c *ctx) onClose(f func()) { c.closers = append(c.closers, f) }

func (c *ctx) close() {
	for i := len(c.closers) - 1; i >= 0; i-- {
		c.closers[i]()
	}
}

func (c *ctx) servers() primitive.NamesrvAddr { return primitive.NamesrvAddr{c.namesrv} }

func (c *ctx) producer(options ...producer.Option) (rocketmq.Producer, error) {
	all := append([]producer.Option{
		producer.WithNameServer(c.servers()),
		producer.WithGroupName("p-" + c.topic()),
		producer.WithInstanceName(instance()),
		producer.WithSendMsgTimeout(15 * time.Second),
		producer.WithQueueSelector(producer.NewManualQueueSelector()),
	}, options...)
	p, err := rocketmq.NewProducer(all...)
	if err != nil {
		return nil, err
	}
	if err := p.Start(); err != nil {
		return nil, err
	}
	c.onClose(func() { _ = p.Shutdown() })
	return p, nil
}

// createTopic makes a topic and returns its queues in the order of their numbers.
func (c *ctx) createTopic(topic string, queues int) ([]*primitive.MessageQueue, error) {
	a, err := admin.NewAdmin(admin.WithResolver(primitive.NewPassthroughResolver([]string{c.namesrv})))
	if err != nil {
		return nil, err
	}
	// The admin's client is shared by all admins of the process; closing it would close theirs.
	err = a.CreateTopic(context.Background(), admin.WithTopicCreate(topic), admin.WithBrokerAddrCreate(c.args["broker"]),
		admin.WithReadQueueNums(queues), admin.WithWriteQueueNums(queues))
	if err != nil {
		return nil, fmt.Errorf("create topic: %w", err)
	}
	var found []*primitive.MessageQueue
	err = until(30*time.Second, func() error {
		found, err = a.FetchPublishMessageQueues(context.Background(), topic)
		if err == nil && len(found) != queues {
			err = fmt.Errorf("%d queues of %d", len(found), queues)
		}
		return err
	})
	sort.Slice(found, func(i, j int) bool { return found[i].QueueId < found[j].QueueId })
	return found, err
}

type listener = func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error)

func (c *ctx) push(group, topic, expression string, f listener, options ...consumer.Option) (rocketmq.PushConsumer, error) {
	all := append([]consumer.Option{
		consumer.WithNameServer(c.servers()),
		consumer.WithGroupName(group),
		consumer.WithInstance(instance()),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumerModel(consumer.Clustering),
	}, options...)
	p, err := rocketmq.NewPushConsumer(all...)
	if err != nil {
		return nil, err
	}
	if err := p.Subscribe(topic, consumer.MessageSelector{Type: consumer.TAG, Expression: expression}, f); err != nil {
		return nil, err
	}
	if err := p.Start(); err != nil {
		return nil, err
	}
	var once sync.Once
	c.onClose(func() { once.Do(func() { _ = p.Shutdown() }) })
	return p, nil
}

// collect reads a whole topic with a group of its own, sorted by queue and offset.
func (c *ctx) collect(topic string, n int) ([]*primitive.MessageExt, error) {
	rec := &recorder{}
	if _, err := c.push(c.group("-collect"), topic, "*", rec.take("A")); err != nil {
		return nil, err
	}
	if err := rec.await(n, 40*time.Second); err != nil {
		return nil, err
	}
	time.Sleep(200 * time.Millisecond)
	if got := len(rec.list()); got != n {
		return nil, fmt.Errorf("%d messages came, %d were sent", got, n)
	}
	var messages []*primitive.MessageExt
	for _, g := range rec.list() {
		messages = append(messages, g.message)
	}
	sort.Slice(messages, func(i, j int) bool {
		a, b := messages[i], messages[j]
		if a.Queue.QueueId != b.Queue.QueueId {
			return a.Queue.QueueId < b.Queue.QueueId
		}
		return a.QueueOffset < b.QueueOffset
	})
	return messages, nil
}

// recorder keeps what members of a group received, in order. Safe from any goroutine.
type recorder struct {
	mu  sync.Mutex
	all []got
}

type got struct {
	member  string
	message *primitive.MessageExt
	at      time.Time
}

func (r *recorder) take(member string) listener {
	return func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, m := range messages {
			r.add(member, m)
		}
		return consumer.ConsumeSuccess, nil
	}
}

func (r *recorder) add(member string, m *primitive.MessageExt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, got{member, m, time.Now()})
}

func (r *recorder) list() []got {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]got(nil), r.all...)
}

func (r *recorder) bodies() map[string]int {
	counts := map[string]int{}
	for _, g := range r.list() {
		counts[string(g.message.Body)]++
	}
	return counts
}

func (r *recorder) queues(member string, since time.Time) map[int]bool {
	queues := map[int]bool{}
	for _, g := range r.list() {
		if g.member == member && !g.at.Before(since) {
			queues[g.message.Queue.QueueId] = true
		}
	}
	return queues
}

// await waits for n different bodies.
func (r *recorder) await(n int, limit time.Duration) error {
	return until(limit, func() error {
		if have := len(r.bodies()); have < n {
			return fmt.Errorf("%d of %d messages came", have, n)
		}
		return nil
	})
}

func (r *recorder) checkAll(prefix string, n int) error {
	bodies := r.bodies()
	for i := 0; i < n; i++ {
		body := fmt.Sprintf("%s%d", prefix, i)
		if bodies[body] == 0 {
			return fmt.Errorf("%s never came", body)
		}
		delete(bodies, body)
	}
	for body := range bodies {
		return fmt.Errorf("a message came that was not sent: %.60s", body)
	}
	return nil
}

func (r *recorder) checkOrder() error {
	next := map[int]int64{}
	for _, g := range r.list() {
		queue, offset := g.message.Queue.QueueId, g.message.QueueOffset
		if offset > next[queue] {
			return fmt.Errorf("queue %d: offset %d came before %d (member %s)", queue, offset, next[queue], g.member)
		}
		if offset == next[queue] {
			next[queue]++
		}
	}
	return nil
}

// until repeats a check until it holds; its last complaint is the error.
func until(limit time.Duration, check func() error) error {
	deadline := time.Now().Add(limit)
	for {
		err := check()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not within %v: %w", limit, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func equal[T comparable](expected, came T, what string) error {
	if expected != came {
		return fmt.Errorf("%s: expected %v, came %v", what, expected, came)
	}
	return nil
}

func firstError(errors ...error) error {
	for _, err := range errors {
		if err != nil {
			return err
		}
	}
	return nil
}
