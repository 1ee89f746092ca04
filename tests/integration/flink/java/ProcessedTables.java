import org.apache.flink.table.annotation.ArgumentHint;
import org.apache.flink.table.annotation.ArgumentTrait;
import org.apache.flink.table.annotation.StateHint;
import org.apache.flink.table.api.dataview.MapView;
import org.apache.flink.table.functions.ProcessTableFunction;
import org.apache.flink.types.Row;

/** A process table function, which Flink has since 2.1: how many rows of a key came, and how often each text. */
public class ProcessedTables extends ProcessTableFunction<String> {
    public static class Seen {
        public long times;
    }

    public void eval(
            @StateHint(name = "seen") Seen seen,
            @StateHint(name = "texts") MapView<String, Integer> texts,
            @ArgumentHint(name = "input", value = ArgumentTrait.SET_SEMANTIC_TABLE) Row input)
            throws Exception {
        String text = String.valueOf(input.getField("c"));
        Integer before = texts.get(text);
        texts.put(text, before == null ? 1 : before + 1);
        seen.times++;
        collect(seen.times + " " + text + " " + texts.get(text));
    }
}
