package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand"
	"strings"
	"sync"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

func message(topic, tag, key, body string) *primitive.Message {
	m := primitive.NewMessage(topic, []byte(body))
	if tag != "" {
		m.WithTag(tag)
	}
	if key != "" {
		m.WithKeys([]string{key})
	}
	return m
}

func sendOK(p rocketmq.Producer, m ...*primitive.Message) (*primitive.SendResult, error) {
	r, err := p.SendSync(context.Background(), m...)
	if err != nil {
		return nil, fmt.Errorf("send: %w", err)
	}
	if r.Status != primitive.SendOK {
		return nil, fmt.Errorf("send status %d", r.Status)
	}
	return r, nil
}

// begin makes the scenario's topic and a producer that sends to the queue a message names, or round robin.
func (c *ctx) begin(queues int, options ...producer.Option) (rocketmq.Producer, []*primitive.MessageQueue, error) {
	mqs, err := c.createTopic(c.topic(), queues)
	if err != nil {
		return nil, nil, err
	}
	p, err := c.producer(options...)
	return p, mqs, err
}

func sendSync(c *ctx) error {
	p, _, err := c.begin(4, producer.WithQueueSelector(producer.NewRoundRobinQueueSelector()))
	if err != nil {
		return err
	}
	where := map[string]string{}
	for i := 0; i < 20; i++ {
		r, err := sendOK(p, message(c.topic(), fmt.Sprintf("T%d", i%3), fmt.Sprintf("k%d", i), fmt.Sprintf("body-%d", i)))
		if err != nil {
			return err
		}
		where[fmt.Sprintf("%d@%d", r.MessageQueue.QueueId, r.QueueOffset)] = fmt.Sprintf("body-%d", i)
	}
	if err := equal(20, len(where), "different places in the answers"); err != nil {
		return err
	}
	all, err := c.collect(c.topic(), 20)
	if err != nil {
		return err
	}
	for _, m := range all {
		var i int
		_, _ = fmt.Sscanf(string(m.Body), "body-%d", &i)
		if err := firstError(
			equal(where[fmt.Sprintf("%d@%d", m.Queue.QueueId, m.QueueOffset)], string(m.Body), "body at the place of the answer"),
			equal(fmt.Sprintf("T%d", i%3), m.GetTags(), "tag"),
			equal(fmt.Sprintf("k%d", i), m.GetKeys(), "keys"),
		); err != nil {
			return err
		}
	}
	return nil
}

func sendAsync(c *ctx) error {
	p, _, err := c.begin(4, producer.WithQueueSelector(producer.NewRoundRobinQueueSelector()))
	if err != nil {
		return err
	}
	var wait sync.WaitGroup
	var mu sync.Mutex
	var trouble error
	for i := 0; i < 100; i++ {
		wait.Add(1)
		err := p.SendAsync(context.Background(), func(_ context.Context, r *primitive.SendResult, err error) {
			defer wait.Done()
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				trouble = err
			} else if r.Status != primitive.SendOK {
				trouble = fmt.Errorf("send status %d", r.Status)
			}
		}, message(c.topic(), "", "", fmt.Sprintf("async-%d", i)))
		if err != nil {
			return err
		}
	}
	wait.Wait()
	if trouble != nil {
		return trouble
	}
	_, err = c.collect(c.topic(), 100)
	return err
}

func sendOneway(c *ctx) error {
	p, _, err := c.begin(2, producer.WithQueueSelector(producer.NewRoundRobinQueueSelector()))
	if err != nil {
		return err
	}
	for i := 0; i < 50; i++ {
		if err := p.SendOneWay(context.Background(), message(c.topic(), "", "", fmt.Sprintf("oneway-%d", i))); err != nil {
			return err
		}
	}
	_, err = c.collect(c.topic(), 50)
	return err
}

func sendBatch(c *ctx) error {
	p, _, err := c.begin(1, producer.WithQueueSelector(producer.NewRoundRobinQueueSelector()))
	if err != nil {
		return err
	}
	var batch []*primitive.Message
	for i := 0; i < 20; i++ {
		m := message(c.topic(), "T", fmt.Sprintf("key%d", i), fmt.Sprintf("batch-%d", i))
		m.WithProperty("名字", fmt.Sprintf("值%d", i))
		batch = append(batch, m)
	}
	if _, err := sendOK(p, batch...); err != nil {
		return err
	}
	all, err := c.collect(c.topic(), 20)
	if err != nil {
		return err
	}
	for i, m := range all {
		if err := firstError(
			equal(int64(i), m.QueueOffset, "queue offset"),
			equal(fmt.Sprintf("batch-%d", i), string(m.Body), "body"),
			equal(fmt.Sprintf("值%d", i), m.GetProperty("名字"), "user property"),
			equal("T", m.GetTags(), "tag"),
		); err != nil {
			return err
		}
	}
	return nil
}

func sendSelector(c *ctx) error {
	p, mqs, err := c.begin(4)
	if err != nil {
		return err
	}
	for i := 0; i < 40; i++ {
		m := message(c.topic(), "", "", fmt.Sprintf("order-%d-%d", i%4, i))
		m.Queue = mqs[i%4]
		r, err := sendOK(p, m)
		if err != nil {
			return err
		}
		if err := equal(i%4, r.MessageQueue.QueueId, "queue of the answer"); err != nil {
			return err
		}
	}
	all, err := c.collect(c.topic(), 40)
	if err != nil {
		return err
	}
	for i, m := range all {
		queue, number := i/10, i%10
		if err := equal(fmt.Sprintf("order-%d-%d", queue, number*4+queue), string(m.Body), "body"); err != nil {
			return err
		}
	}
	return nil
}

func sendProperties(c *ctx) error {
	p, mqs, err := c.begin(1)
	if err != nil {
		return err
	}
	m := primitive.NewMessage(c.topic(), []byte("正文 🚀 body"))
	m.WithTag("标签")
	m.WithKeys([]string{"订单-1", "订单-2"})
	m.Flag = 7
	m.WithProperty("名字", "值 😀 emoji")
	m.WithProperty("equals", "a=b;c d\te")
	m.WithProperty("long", strings.Repeat("x", 5000))
	m.Queue = mqs[0]
	if _, err := sendOK(p, m); err != nil {
		return err
	}
	all, err := c.collect(c.topic(), 1)
	if err != nil {
		return err
	}
	return firstError(
		equal("正文 🚀 body", string(all[0].Body), "body"),
		equal("标签", all[0].GetTags(), "tag"),
		equal("订单-1 订单-2", all[0].GetKeys(), "keys"),
		equal(7, all[0].Flag, "flag"),
		equal("值 😀 emoji", all[0].GetProperty("名字"), "user property"),
		equal("a=b;c d\te", all[0].GetProperty("equals"), "user property with odd signs"),
		equal(strings.Repeat("x", 5000), all[0].GetProperty("long"), "long user property"),
	)
}

func sendBig(c *ctx) error {
	p, mqs, err := c.begin(1, producer.WithCompressMsgBodyOverHowmuch(1<<30))
	if err != nil {
		return err
	}
	body := make([]byte, 3_900_000)
	rand.New(rand.NewSource(42)).Read(body)
	m := primitive.NewMessage(c.topic(), body)
	m.Queue = mqs[0]
	if _, err := sendOK(p, m); err != nil {
		return err
	}
	all, err := c.collect(c.topic(), 1)
	if err != nil {
		return err
	}
	if !bytes.Equal(body, all[0].Body) {
		return fmt.Errorf("the body came back different")
	}
	return nil
}

func sendCompressed(c *ctx) error {
	p, mqs, err := c.begin(1)
	if err != nil {
		return err
	}
	body := strings.Repeat("compress me 🚀 ", 3000)
	m := message(c.topic(), "z", "k", body)
	m.Queue = mqs[0]
	if _, err := sendOK(p, m); err != nil {
		return err
	}
	all, err := c.collect(c.topic(), 1)
	if err != nil {
		return err
	}
	if string(all[0].Body) != body {
		return fmt.Errorf("the body came back different")
	}
	if all[0].StoreSize > 10_000 {
		return fmt.Errorf("stored size %d: not compressed", all[0].StoreSize)
	}
	return nil
}
