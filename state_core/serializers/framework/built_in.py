"""The module of the class for each name that Flink writes; modules are imported when needed.

Modules are listed in the order in which they depend on one another.
"""

from __future__ import annotations

BUILT_IN = {
    "statelake.state_core.serializers.basic.numbers": (
        "org.apache.flink.api.common.typeutils.base.ByteSerializer$ByteSerializerSnapshot",
        "org.apache.flink.api.common.typeutils.base.ShortSerializer$ShortSerializerSnapshot",
        "org.apache.flink.api.common.typeutils.base.IntSerializer$IntSerializerSnapshot",
        "org.apache.flink.api.common.typeutils.base.LongSerializer$LongSerializerSnapshot",
        "org.apache.flink.api.common.typeutils.base.FloatSerializer$FloatSerializerSnapshot",
        "org.apache.flink.api.common.typeutils.base.DoubleSerializer$DoubleSerializerSnapshot",
        "org.apache.flink.api.common.typeutils.base.BooleanSerializer$BooleanSerializerSnapshot",
        "org.apache.flink.api.common.typeutils.base.CharSerializer$CharSerializerSnapshot",
    ),
    "statelake.state_core.serializers.basic.text": (
        "org.apache.flink.api.common.typeutils.base.StringSerializer$StringSerializerSnapshot",
        "org.apache.flink.api.common.typeutils.base.array.BytePrimitiveArraySerializer$BytePrimitiveArraySerializerSnapshot",
        "org.apache.flink.streaming.api.utils.ByteArrayWrapperSerializer$ByteArrayWrapperSerializerSnapshot",
    ),
    "statelake.state_core.serializers.composite.collections": (
        "org.apache.flink.api.common.typeutils.base.ListSerializerSnapshot",
        "org.apache.flink.api.common.typeutils.base.MapSerializerSnapshot",
    ),
    "statelake.state_core.serializers.composite.structs": (
        "org.apache.flink.api.java.typeutils.runtime.TupleSerializerSnapshot",
        "org.apache.flink.api.java.typeutils.runtime.RowSerializer$RowSerializerSnapshot",
    ),
    "statelake.state_core.serializers.composite.wrappers": (
        "org.apache.flink.runtime.state.ttl.TtlStateFactory$TtlSerializerSnapshot",
        "org.apache.flink.runtime.state.v2.ttl.TtlStateFactory$TtlSerializerSnapshot",
        "org.apache.flink.streaming.api.operators.TimerSerializerSnapshot",
    ),
    "statelake.state_core.serializers.avro.serializer": (
        "org.apache.flink.formats.avro.typeutils.AvroSerializerSnapshot",
        "org.apache.flink.formats.avro.typeutils.AvroSerializer$AvroSchemaSerializerConfigSnapshot",
    ),
    "statelake.state_core.serializers.basic.big_numbers": (
        "org.apache.flink.api.common.typeutils.base.BigIntSerializer$BigIntSerializerSnapshot",
        "org.apache.flink.api.common.typeutils.base.BigDecSerializer$BigDecSerializerSnapshot",
    ),
    "statelake.state_core.serializers.basic.enums": (
        "org.apache.flink.api.common.typeutils.base.EnumSerializer$EnumSerializerSnapshot",
    ),
    "statelake.state_core.serializers.basic.times": (
        "org.apache.flink.api.common.typeutils.base.DateSerializer$DateSerializerSnapshot",
        "org.apache.flink.api.common.typeutils.base.SqlDateSerializer$SqlDateSerializerSnapshot",
        "org.apache.flink.api.common.typeutils.base.SqlTimeSerializer$SqlTimeSerializerSnapshot",
        "org.apache.flink.api.common.typeutils.base.SqlTimestampSerializer$SqlTimestampSerializerSnapshot",
        "org.apache.flink.api.common.typeutils.base.InstantSerializer$InstantSerializerSnapshot",
        "org.apache.flink.api.common.typeutils.base.LocalDateSerializer$LocalDateSerializerSnapshot",
        "org.apache.flink.api.common.typeutils.base.LocalTimeSerializer$LocalTimeSerializerSnapshot",
        "org.apache.flink.api.common.typeutils.base.LocalDateTimeSerializer$LocalDateTimeSerializerSnapshot",
    ),
    "statelake.state_core.serializers.basic.values": (
        "org.apache.flink.api.common.typeutils.base.BooleanValueSerializer$BooleanValueSerializerSnapshot",
        "org.apache.flink.api.common.typeutils.base.ByteValueSerializer$ByteValueSerializerSnapshot",
        "org.apache.flink.api.common.typeutils.base.CharValueSerializer$CharValueSerializerSnapshot",
        "org.apache.flink.api.common.typeutils.base.DoubleValueSerializer$DoubleValueSerializerSnapshot",
        "org.apache.flink.api.common.typeutils.base.FloatValueSerializer$FloatValueSerializerSnapshot",
        "org.apache.flink.api.common.typeutils.base.IntValueSerializer$IntValueSerializerSnapshot",
        "org.apache.flink.api.common.typeutils.base.LongValueSerializer$LongValueSerializerSnapshot",
        "org.apache.flink.api.common.typeutils.base.ShortValueSerializer$ShortValueSerializerSnapshot",
        "org.apache.flink.api.common.typeutils.base.StringValueSerializer$StringValueSerializerSnapshot",
        "org.apache.flink.api.common.typeutils.base.VoidSerializer$VoidSerializerSnapshot",
        "org.apache.flink.api.common.typeutils.base.NullValueSerializer$NullValueSerializerSnapshot",
        "org.apache.flink.api.java.typeutils.runtime.Tuple0SerializerSnapshot",
        "org.apache.flink.runtime.state.JavaSerializer$JavaSerializerSnapshot",
    ),
    "statelake.state_core.serializers.composite.optionals": (
        "org.apache.flink.api.java.typeutils.runtime.NullableSerializer$NullableSerializerSnapshot",
        "org.apache.flink.api.java.typeutils.runtime.JavaEitherSerializerSnapshot",
        "org.apache.flink.api.java.typeutils.runtime.EitherSerializerSnapshot",
    ),
    "statelake.state_core.serializers.composite.arrays": (
        "org.apache.flink.api.common.typeutils.base.array.BooleanPrimitiveArraySerializer$BooleanPrimitiveArraySerializerSnapshot",
        "org.apache.flink.api.common.typeutils.base.array.CharPrimitiveArraySerializer$CharPrimitiveArraySerializerSnapshot",
        "org.apache.flink.api.common.typeutils.base.array.ShortPrimitiveArraySerializer$ShortPrimitiveArraySerializerSnapshot",
        "org.apache.flink.api.common.typeutils.base.array.IntPrimitiveArraySerializer$IntPrimitiveArraySerializerSnapshot",
        "org.apache.flink.api.common.typeutils.base.array.LongPrimitiveArraySerializer$LongPrimitiveArraySerializerSnapshot",
        "org.apache.flink.api.common.typeutils.base.array.FloatPrimitiveArraySerializer$FloatPrimitiveArraySerializerSnapshot",
        "org.apache.flink.api.common.typeutils.base.array.DoublePrimitiveArraySerializer$DoublePrimitiveArraySerializerSnapshot",
        "org.apache.flink.api.common.typeutils.base.array.StringArraySerializer$StringArraySerializerSnapshot",
        "org.apache.flink.api.common.typeutils.base.GenericArraySerializerSnapshot",
        "org.apache.flink.api.common.typeutils.base.SetSerializerSnapshot",
        "org.apache.flink.runtime.state.ArrayListSerializerSnapshot",
        "org.apache.flink.api.common.typeutils.base.GenericArraySerializerConfigSnapshot",
    ),
    "statelake.state_core.serializers.composite.namespaces": (
        "org.apache.flink.runtime.state.VoidNamespaceSerializer$VoidNamespaceSerializerSnapshot",
        "org.apache.flink.streaming.api.windowing.windows.GlobalWindow$Serializer$GlobalWindowSerializerSnapshot",
        "org.apache.flink.streaming.api.windowing.windows.TimeWindow$Serializer$TimeWindowSerializerSnapshot",
    ),
    "statelake.state_core.serializers.composite.pojo_snapshot": (
        "org.apache.flink.api.java.typeutils.runtime.PojoSerializerSnapshot",
    ),
    "statelake.state_core.serializers.opaque.opaque_bytes": (
        "org.apache.flink.api.java.typeutils.runtime.ValueSerializer$ValueSerializerSnapshot",
        "org.apache.flink.api.java.typeutils.runtime.CopyableValueSerializer$CopyableValueSerializerSnapshot",
    ),
    "statelake.state_core.serializers.kryo.snapshot": (
        "org.apache.flink.api.java.typeutils.runtime.kryo.KryoSerializerSnapshot",
    ),
    "statelake.state_core.serializers.operators.cep": (
        "org.apache.flink.cep.nfa.DeweyNumber$DeweyNumberSerializer$DeweyNumberSerializerSnapshot",
        "org.apache.flink.cep.nfa.sharedbuffer.EventId$EventIdSerializer$EventIdSerializerSnapshot",
        "org.apache.flink.cep.nfa.sharedbuffer.NodeId$NodeIdSerializer$NodeIdSerializerSnapshot",
        "org.apache.flink.cep.nfa.sharedbuffer.LockableTypeSerializerSnapshot",
        "org.apache.flink.cep.nfa.sharedbuffer.SharedBufferEdge$SharedBufferEdgeSerializer$SharedBufferEdgeSerializerSnapshot",
        "org.apache.flink.cep.nfa.sharedbuffer.SharedBufferNodeSerializerSnapshotV2",
        "org.apache.flink.cep.nfa.sharedbuffer.SharedBufferNode$SharedBufferNodeSerializer$SharedBufferNodeSerializerSnapshot",
        "org.apache.flink.cep.nfa.NFAStateSerializerSnapshot",
        "org.apache.flink.cep.nfa.NFA$MigratedNFASerializerSnapshot",
        "org.apache.flink.cep.nfa.SharedBuffer$SharedBufferSerializerSnapshot",
    ),
    "statelake.state_core.serializers.operators.joins": (
        "org.apache.flink.streaming.api.datastream.CoGroupedStreams$UnionSerializerSnapshot",
        "org.apache.flink.streaming.api.operators.co.IntervalJoinOperator$BufferEntrySerializerSnapshot",
    ),
    "statelake.state_core.serializers.operators.sinks": (
        "org.apache.flink.streaming.api.functions.sink.legacy.TwoPhaseCommitSinkFunction$StateSerializerSnapshot",
        "org.apache.flink.streaming.api.functions.sink.TwoPhaseCommitSinkFunction$StateSerializerSnapshot",
        "org.apache.flink.streaming.connectors.kafka.FlinkKafkaProducer$TransactionStateSerializer$TransactionStateSerializerSnapshot",
        "org.apache.flink.streaming.connectors.kafka.FlinkKafkaProducer$ContextStateSerializer$ContextStateSerializerSnapshot",
        "org.apache.flink.streaming.connectors.kafka.FlinkKafkaProducer$NextTransactionalIdHintSerializer$NextTransactionalIdHintSerializerSnapshot",
        "org.apache.flink.streaming.connectors.kafka.FlinkKafkaProducer011$TransactionStateSerializer$TransactionStateSerializerSnapshot",
        "org.apache.flink.streaming.connectors.kafka.FlinkKafkaProducer011$ContextStateSerializer$ContextStateSerializerSnapshot",
        "org.apache.flink.streaming.connectors.kafka.FlinkKafkaProducer011$NextTransactionalIdHintSerializer$NextTransactionalIdHintSerializerSnapshot",
    ),
    "statelake.state_core.serializers.operators.stream_elements": (
        "org.apache.flink.streaming.runtime.streamrecord.StreamElementSerializer$StreamElementSerializerSnapshot",
    ),
    "statelake.state_core.serializers.scala.enums": (
        "org.apache.flink.api.scala.typeutils.ScalaEnumSerializerSnapshot",
    ),
    "statelake.state_core.serializers.scala.serializers": (
        "org.apache.flink.api.scala.typeutils.UnitSerializer$UnitSerializerSnapshot",
        "org.apache.flink.api.scala.typeutils.NothingSerializerSnapshot",
        "org.apache.flink.api.scala.typeutils.ScalaCaseClassSerializerSnapshot",
        "org.apache.flink.api.scala.typeutils.Tuple2CaseClassSerializerSnapshot",
        "org.apache.flink.api.scala.typeutils.TraversableSerializerSnapshot",
        "org.apache.flink.api.scala.typeutils.ScalaOptionSerializerSnapshot",
        "org.apache.flink.api.scala.typeutils.ScalaEitherSerializerSnapshot",
        "org.apache.flink.api.scala.typeutils.ScalaTrySerializerSnapshot",
    ),
    "statelake.state_core.serializers.sql.table_data": (
        "org.apache.flink.table.runtime.typeutils.StringDataSerializer$StringDataSerializerSnapshot",
        "org.apache.flink.table.runtime.typeutils.DecimalDataSerializer$DecimalSerializerSnapshot",
        "org.apache.flink.table.runtime.typeutils.RawValueDataSerializer$RawValueDataSerializerSnapshot",
    ),
    "statelake.state_core.serializers.sql.table_timestamps": (
        "org.apache.flink.table.runtime.typeutils.TimestampDataSerializer$TimestampDataSerializerSnapshot",
    ),
    "statelake.state_core.serializers.sql.row_data": (
        "org.apache.flink.table.runtime.typeutils.RowDataSerializer$RowDataSerializerSnapshot",
        "org.apache.flink.table.runtime.typeutils.BinaryRowDataSerializer$BinaryRowDataSerializerSnapshot",
        "org.apache.flink.table.runtime.typeutils.ArrayDataSerializer$ArrayDataSerializerSnapshot",
        "org.apache.flink.table.runtime.typeutils.MapDataSerializer$MapDataSerializerSnapshot",
    ),
    "statelake.state_core.serializers.sql.table_collections": (
        "org.apache.flink.table.runtime.typeutils.LinkedListSerializer$LinkedListSerializerSnapshot",
        "org.apache.flink.table.runtime.typeutils.SortedMapSerializerSnapshot",
        "org.apache.flink.table.dataview.NullAwareMapSerializerSnapshot",
    ),
    "statelake.state_core.serializers.sql.table_structures": (
        "org.apache.flink.table.dataview.NullSerializer$NullSerializerSnapshot",
        "org.apache.flink.table.runtime.operators.sink.SortedLongSerializer$SortedLongSerializerSnapshot",
        "org.apache.flink.table.runtime.operators.window.TimeWindow$Serializer$TimeWindowSerializerSnapshot",
        "org.apache.flink.table.runtime.operators.window.CountWindow$Serializer$CountWindowSerializerSnapshot",
        "org.apache.flink.table.runtime.operators.window.GlobalWindow$Serializer$GlobalWindowSerializerSnapshot",
        "org.apache.flink.table.runtime.typeutils.WindowKeySerializer$WindowKeySerializerSnapshot",
        "org.apache.flink.table.runtime.sequencedmultisetstate.linked.RowSqnInfoSerializer$RowSqnInfoSerializerSnapshot",
        "org.apache.flink.table.runtime.sequencedmultisetstate.linked.MetaSqnInfoSerializer$MetaSqnInfoSerializerSnapshot",
        "org.apache.flink.table.runtime.sequencedmultisetstate.linked.NodeSerializer$NodeSerializerSnapshot",
        "org.apache.flink.table.runtime.sequencedmultisetstate.linked.RowDataKeySerializerSnapshot",
    ),
    "statelake.state_core.serializers.sql.table_variants": (
        "org.apache.flink.api.common.typeutils.base.BitmapSerializer$BitmapSerializerSnapshot",
        "org.apache.flink.api.common.typeutils.base.VariantSerializer$VariantSerializerSnapshot",
    ),
    "statelake.state_core.serializers.sql.table_views": (
        "org.apache.flink.table.dataview.MapViewSerializerSnapshot",
        "org.apache.flink.table.dataview.ListViewSerializerSnapshot",
        "org.apache.flink.table.runtime.typeutils.ExternalSerializer$ExternalSerializerSnapshot",
    ),
}
